// Reads jobs with the module as Node loads it: a list of {url, key, options} as JSON on standard input, outcomes on standard output.
import { readFileSync } from "node:fs";

const { Job } = await import(process.argv[2]);
const outcomes = [];
for (const { url, options } of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    const job = new Job(url, options);
    const { contentType } = await job.open();
    outcomes.push({ contentType, payload: Buffer.from(await job.bytes()).toString("hex") });
  } catch (error) {
    outcomes.push({ name: error.name, code: error.code, message: error.message });
  }
}
console.log(JSON.stringify(outcomes));
