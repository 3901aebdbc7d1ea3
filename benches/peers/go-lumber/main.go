// Command go-lumber is the other end for tests and benchmarks: the server and the client of Elastic's Go module, and a
// writer of bytes that were made before, which is the same for every receiver.
//
//	go-lumber serve  [-v1] [-v2] [-decode] [-print] [-cert F -key F] [-timeout D]
//	go-lumber send   -to H:P [-window N] [-level N] [-async N] [-count N] [-size N] [-ca F]     (lines of JSON on stdin without -count)
//	go-lumber blast  -to H:P [-window N] [-level N] [-version 1|2] [-size N] [-seconds S] [-connections N] [-inflight N]
package main

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	client "github.com/elastic/go-lumber/client/v2"
	"github.com/elastic/go-lumber/server"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("serve, send or blast")
	}
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "serve":
		serve(arguments)
	case "send":
		send(arguments)
	case "blast":
		blast(arguments)
	default:
		log.Fatalf("no such command: %s", os.Args[1])
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Nothing is decoded: what comes out is the bytes.
func raw(data []byte, into interface{}) error {
	*(into.(*interface{})) = data
	return nil
}

func serve(arguments []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	v1, v2 := flags.Bool("v1", false, ""), flags.Bool("v2", false, "")
	decode, print := flags.Bool("decode", false, ""), flags.Bool("print", false, "")
	cert, key := flags.String("cert", "", ""), flags.String("key", "", "")
	check(flags.Parse(arguments))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := listener.Addr()
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		check(err)
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	options := []server.Option{server.V1(*v1), server.V2(*v2)}
	if !*decode && !*print {
		options = append(options, server.JSONDecoder(raw))
	}
	receiver, err := server.NewWithListener(listener, options...)
	check(err)
	fmt.Printf("listening %s\n", address)
	out := bufio.NewWriter(os.Stdout)
	for batch := range receiver.ReceiveChan() {
		if *print {
			for _, event := range batch.Events {
				line, err := json.Marshal(event)
				check(err)
				out.Write(append(line, '\n'))
			}
			check(out.Flush())
		}
		batch.ACK()
	}
}

func dial(ca string) func(network, address string) (net.Conn, error) {
	if ca == "" {
		return net.Dial
	}
	pem, err := os.ReadFile(ca)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return func(network, address string) (net.Conn, error) {
		return tls.Dial(network, address, &tls.Config{RootCAs: roots})
	}
}

// An event of JSON with so many bytes.
func event(size int) []byte {
	head, tail := `{"@timestamp":"2026-01-01T00:00:00.000Z","log":{"level":"info","offset":123456},"message":"`, `","status":200}`
	return []byte(head + strings.Repeat("x", max(0, size-len(head)-len(tail))) + tail)
}

func send(arguments []string) {
	flags := flag.NewFlagSet("send", flag.ExitOnError)
	to, ca := flags.String("to", "", ""), flags.String("ca", "", "")
	window, level := flags.Int("window", 2048, ""), flags.Int("level", 3, "")
	inflight, count, size := flags.Int("async", 0, ""), flags.Int("count", 0, ""), flags.Int("size", 200, "")
	check(flags.Parse(arguments))
	var events []interface{}
	if *count > 0 {
		one := json.RawMessage(event(*size))
		for range *count {
			events = append(events, one)
		}
	} else {
		lines := bufio.NewScanner(os.Stdin)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			events = append(events, json.RawMessage(bytes.Clone(lines.Bytes())))
		}
	}
	encode := client.JSONEncoder(func(event interface{}) ([]byte, error) { return event.(json.RawMessage), nil })
	options := []client.Option{client.CompressionLevel(*level), client.Timeout(30 * time.Second), encode}
	began := time.Now()
	sent := 0
	if *inflight > 0 {
		lumber, err := client.AsyncDialWith(dial(*ca), *to, *inflight, options...)
		check(err)
		var acked sync.WaitGroup
		for at := 0; at < len(events); at += *window {
			part := events[at:min(at+*window, len(events))]
			acked.Add(1)
			check(lumber.Send(func(sequence uint32, err error) {
				check(err)
				sent += int(sequence)
				acked.Done()
			}, part))
		}
		acked.Wait()
	} else {
		lumber, err := client.SyncDialWith(dial(*ca), *to, options...)
		check(err)
		for at := 0; at < len(events); at += *window {
			n, err := lumber.Send(events[at:min(at+*window, len(events))])
			check(err)
			sent += n
		}
		check(lumber.Close())
	}
	seconds := time.Since(began).Seconds()
	fmt.Printf("{\"sent\": %d, \"seconds\": %f}\n", sent, seconds)
}

func number(out *bytes.Buffer, value int) {
	check(binary.Write(out, binary.BigEndian, uint32(value)))
}

func windowOf(version byte, count, size, level int) []byte {
	var frames, out bytes.Buffer
	payload := event(size)
	for sequence := 1; sequence <= count; sequence++ {
		frames.Write([]byte{version, 'J'})
		number(&frames, sequence)
		number(&frames, len(payload))
		frames.Write(payload)
	}
	out.Write([]byte{version, 'W'})
	number(&out, count)
	if level == 0 {
		out.Write(frames.Bytes())
		return out.Bytes()
	}
	var packed bytes.Buffer
	writer, err := zlib.NewWriterLevel(&packed, level)
	check(err)
	_, err = writer.Write(frames.Bytes())
	check(err)
	check(writer.Close())
	out.Write([]byte{version, 'C'})
	number(&out, packed.Len())
	out.Write(packed.Bytes())
	return out.Bytes()
}

func blast(arguments []string) {
	flags := flag.NewFlagSet("blast", flag.ExitOnError)
	to := flags.String("to", "", "")
	count, level, size := flags.Int("window", 2048, ""), flags.Int("level", 0, ""), flags.Int("size", 200, "")
	version, connections := flags.Int("version", 2, ""), flags.Int("connections", 1, "")
	inflight, seconds := flags.Int("inflight", 2, ""), flags.Float64("seconds", 2, "")
	rate := flags.Float64("rate", 0, "windows a second on each connection; 0 is as fast as it goes")
	check(flags.Parse(arguments))
	bytes := windowOf(byte('0'+*version), *count, *size, *level)
	var lock sync.Mutex
	var latencies []float64
	var done sync.WaitGroup
	events := 0
	var sockets []net.Conn
	for range *connections {
		socket, err := net.Dial("tcp", *to)
		check(err)
		sockets = append(sockets, socket)
	}
	began := time.Now()
	until := began.Add(time.Duration(*seconds * float64(time.Second)))
	for index, socket := range sockets {
		done.Add(1)
		go func() {
			defer done.Done()
			sent := make(chan time.Time, *inflight)
			finished := make(chan int)
			go func() { finished <- acks(socket, *count, sent, &lock, &latencies) }()
			if *rate > 0 {
				time.Sleep(time.Duration(float64(index) / float64(*connections) / *rate * float64(time.Second)))
			}
			for time.Now().Before(until) {
				sent <- time.Now()
				_, err := socket.Write(bytes)
				check(err)
				if *rate > 0 {
					time.Sleep(time.Duration(float64(time.Second) / *rate))
				}
			}
			close(sent)
			got := <-finished
			lock.Lock()
			events += got
			lock.Unlock()
		}()
	}
	done.Wait()
	took := time.Since(began).Seconds()
	sort.Float64s(latencies)
	at := func(share float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		return latencies[min(len(latencies)-1, int(share*float64(len(latencies))))]
	}
	fmt.Printf("{\"events\": %d, \"seconds\": %f, \"p50\": %f, \"p99\": %f}\n", events, took, at(0.5), at(0.99))
}

// Reads acknowledgements until all windows have theirs; gives the events.
func acks(socket net.Conn, count int, sent chan time.Time, lock *sync.Mutex, latencies *[]float64) int {
	reader := bufio.NewReader(socket)
	events := 0
	var mine []float64
	for at := range sent {
		for {
			frame := make([]byte, 6)
			_, err := io.ReadFull(reader, frame)
			check(err)
			if sequence := binary.BigEndian.Uint32(frame[2:]); sequence == uint32(count) {
				break
			}
		}
		events += count
		mine = append(mine, time.Since(at).Seconds())
	}
	lock.Lock()
	*latencies = append(*latencies, mine...)
	lock.Unlock()
	socket.Close()
	return events
}
