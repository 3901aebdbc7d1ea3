//! The pages of a service for people who use a browser.

use std::fmt::Write as _;

use super::Response;
use super::config::Config;
use crate::protocol::Protocol;

const HTML: &str = "text/html; charset=utf-8";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn page(status: u16, title: &str, body: &str) -> Response {
    let title = escape(title);
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body {{ font-family: sans-serif; max-width: 50em; margin: 3em auto; padding: 0 1em }}\
         dt {{ margin-top: 1em }} code {{ background: #eee }}</style></head>\n\
         <body>\n<h1>{title}</h1>\n{body}</body></html>\n"
    );
    Response::text(status, HTML, html)
}

fn source(config: &Config) -> String {
    // Other schemes, such as `javascript:`, must not become links.
    let web = config.repo_url.as_deref().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    web.map_or_else(String::new, |url| format!("<p><a href=\"{}\">Source</a></p>\n", escape(url)))
}

/// Return the response to `GET PREFIX/health`.
pub(super) fn health(config: &Config, protocol: &str) -> Response {
    let body = serde_json::json!({"status": "ok", "server_id": config.server_id, "protocol": protocol});
    Response::text(200, "application/json", body.to_string())
}

/// Return the response to `GET PREFIX`.
pub(super) fn landing(config: &Config, protocol: &str) -> Response {
    let mut body = format!(
        "<p>This is a service of vgi-rpc: its methods are called with Arrow batches.</p>\n<p>Server <code>{}</code></p>\n",
        escape(&config.server_id)
    );
    if config.describe_page && config.description.is_some() {
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<p><a href=\"{}/describe\">Its methods</a></p>", escape(&config.prefix));
    }
    body.push_str(&source(config));
    page(200, protocol, &body)
}

/// Return the response to `GET PREFIX/describe`.
pub(super) fn describe(config: &Config, protocol: &Protocol) -> Response {
    let mut body = String::from("<dl>\n");
    for method in protocol.methods() {
        let fields = method.params.fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type()));
        let params = fields.collect::<Vec<_>>().join(", ");
        let result =
            method.result.fields().first().map_or_else(String::new, |field| format!(" → {}", field.data_type()));
        let _ = writeln!(
            body,
            "<dt><code>{}({}){}</code>, {}</dt>\n<dd>{}</dd>",
            escape(&method.name),
            escape(&params),
            escape(&result),
            method.kind.name(),
            escape(method.doc.as_deref().unwrap_or_default())
        );
    }
    body.push_str("</dl>\n");
    body.push_str(&source(config));
    page(200, protocol.name(), &body)
}

/// Return the response for a path without content.
pub(super) fn not_found(config: &Config, protocol: &str) -> Response {
    if !config.not_found_page {
        return Response::text(404, "text/plain; charset=utf-8", "there is nothing here\n");
    }
    let at = if config.prefix.is_empty() { "/" } else { &config.prefix };
    let body = format!("<p>The service {} is at <code>{}</code>.</p>\n", escape(protocol), escape(at));
    page(404, "404: there is nothing here", &body)
}

/// Return the page for an unauthorized caller, in dialect 0.10.
pub(super) fn unauthorized(message: &str) -> Response {
    page(401, "401: unauthorized", &format!("<p>{}</p>\n", escape(message)))
}
