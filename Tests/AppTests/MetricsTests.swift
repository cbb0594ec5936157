import App
import CoreMetrics
import Foundation
import HTTPTypes
import Testing

@testable import API

@Suite("The metrics' text")
struct MetricsTests {
  @Test("the metrics are in Prometheus's text format, sorted")
  func whole() {
    var configuration = PrometheusRegistry.Configuration()
    configuration.help = ["jobs_submitted": "Jobs, \\ and\nmore."]
    configuration.buckets = ["fetch_seconds": [0.1, 1]]
    let registry = PrometheusRegistry(configuration)
    Counter(label: "jobs.submitted", dimensions: [("b", "2"), ("a", "1")], factory: registry)
      .increment(by: 3)
    Counter(label: "jobs.submitted", dimensions: [("a", "0"), ("b", "2")], factory: registry)
      .increment()
    Gauge(label: "jobs.queued", factory: registry).record(2.5)
    let timer = Timer(label: "fetch", factory: registry)
    for milliseconds in [50, 100, 500, 5000] { timer.recordMilliseconds(milliseconds) }
    #expect(
      registry.render() == #"""
        # HELP fetch_seconds fetch
        # TYPE fetch_seconds histogram
        fetch_seconds_bucket{le="0.1"} 2
        fetch_seconds_bucket{le="1"} 3
        fetch_seconds_bucket{le="+Inf"} 4
        fetch_seconds_sum 5.65
        fetch_seconds_count 4
        # HELP jobs_queued jobs.queued
        # TYPE jobs_queued gauge
        jobs_queued 2.5
        # HELP jobs_submitted_total Jobs, \\ and\nmore.
        # TYPE jobs_submitted_total counter
        jobs_submitted_total{a="0",b="2"} 1
        jobs_submitted_total{a="1",b="2"} 3

        """#)
  }

  @Test("each metric in the sources has a description")
  func sentences() throws {
    let known = PrometheusRegistry.Configuration().help
    let folder = Readme.root + "Sources/"
    var found = 0
    for file in try FileManager.default.subpathsOfDirectory(atPath: folder)
    where file.hasSuffix(".swift") {
      let text = try String(contentsOfFile: folder + file, encoding: .utf8)
      for match in text.matches(of: #/label: "(imagefetch_[a-z_]+)"/#) {
        let name = match.1.hasSuffix("_total") ? match.1.dropLast(6) : match.1
        let isKnown = known[String(name)]?.hasSuffix(".") == true
        #expect(isKnown, "\(match.1)")
        found += 1
      }
    }
    #expect(found > 10)
  }

  @Test("hostile names and labels cannot break the format")
  func hostile() throws {
    let registry = PrometheusRegistry()
    let texts = [
      "", "1a", "a b", "a\"b", "a\\", "a\nb 1", "ä", "le", "__name__", "a{b=\"c\"}", "a:b",
    ]
    for text in texts {
      Counter(label: text, dimensions: [(text, text)], factory: registry).increment()
      Gauge(label: text, dimensions: [(text, text)], factory: registry).record(1)
      Timer(label: text, dimensions: [(text, text)], factory: registry).recordNanoseconds(1)
    }
    let samples = try Exposition(registry.render()).samples
    #expect(Set(samples.map(\.id)).count == samples.count)
    #expect(samples.contains { $0.id == #"a_b_1_total{a_b_1="a\nb 1"}"# })
    #expect(samples.contains { $0.id == #"le_seconds_count{label_le="le"}"# })
  }

  @Test("series beyond the limit are combined as other")
  func cardinality() throws {
    var configuration = PrometheusRegistry.Configuration()
    configuration.maxSeries = 3
    let registry = PrometheusRegistry(configuration)
    for host in 0..<100 {
      Counter(label: "x", dimensions: [("host", "\(host)")], factory: registry).increment()
    }
    Counter(label: "x", dimensions: [("host", "1")], factory: registry).increment()
    let samples = try Exposition(registry.render()).samples
    #expect(samples.map(\.id) == ["0", "1", "2", "other"].map { "x_total{host=\"\($0)\"}" })
    #expect(samples.map(\.value) == [1, 2, 1, 97])
  }

  @Test("each route, method and status of requests has its own series, so alerts see a first error")
  func requests() throws {
    let registry = PrometheusRegistry()
    let statuses = Set(
      [200, 202, 204, 206, 304, 417, 501] + ProblemCode.allCases.map(\.row.status.code))
    for route in Route.allCases {
      for method in route.methods.map(\.rawValue) + ["other"] {
        let labels = [("route", route.template), ("method", method)]
        Timer(
          label: "imagefetch_http_request_duration_seconds", dimensions: labels, factory: registry
        ).recordNanoseconds(1)
        for status in statuses {
          Counter(
            label: "imagefetch_http_requests_total", dimensions: labels + [("status", "\(status)")],
            factory: registry
          ).increment()
        }
      }
    }
    let samples = try Exposition(registry.render()).samples
    #expect(!samples.contains { $0.id.contains(#"route="other""#) })
    #expect(samples.count { $0.id.contains(#"status="500""#) && $0.value == 1 } > 100)
  }

  @Test("the number of metrics is limited")
  func metrics() throws {
    var configuration = PrometheusRegistry.Configuration()
    configuration.maxMetrics = 5
    let registry = PrometheusRegistry(configuration)
    for index in 0..<20 { Counter(label: "x\(index)", factory: registry).increment() }
    #expect(try Exposition(registry.render()).samples.count == 5)
  }

  @Test("a metric's name has one type and description")
  func collisions() throws {
    let registry = PrometheusRegistry()
    Counter(label: "a", factory: registry).increment()
    Gauge(label: "a_total", factory: registry).record(5)
    FloatingPointCounter(label: "a", factory: registry).increment(by: 7)
    Timer(label: "b", factory: registry).recordNanoseconds(1)
    Gauge(label: "b_seconds_count", factory: registry).record(9)
    let samples = try Exposition(registry.render()).samples
    #expect(samples.first { $0.id == "a_total" }?.value == 1)
    #expect(samples.first { $0.id == "b_seconds_count" }?.value == 1)
    #expect(Set(samples.map(\.id)).count == samples.count)
  }

  @Test("a meter and a counter have the values that were set")
  func values() throws {
    let registry = PrometheusRegistry()
    let meter = Meter(label: "m", factory: registry)
    meter.set(5)
    meter.increment(by: 2.5)
    meter.decrement(by: 1)
    let counter = Counter(label: "c", factory: registry)
    counter.increment(by: 4)
    counter.increment(by: -2)
    let fraction = FloatingPointCounter(label: "f", factory: registry)
    fraction.increment(by: 0.25)
    let recorder = Recorder(label: "r", factory: registry)
    recorder.record(5000)
    recorder.record(Double.nan)
    Gauge(label: "g", factory: registry).record(-Double.infinity)
    counter.destroy()
    let values = try Dictionary(
      uniqueKeysWithValues: Exposition(registry.render()).samples.map { ($0.id, $0.value) })
    #expect(values["m"] == 6.5)
    #expect(values["c_total"] == 4)
    #expect(values["f_total"] == 0.25)
    #expect(values["r_bucket{le=\"4096\"}"] == 0)
    #expect(values["r_bucket{le=\"16384\"}"] == 1)
    #expect(values["r_count"] == 1)
    #expect(values["g"] == -Double.infinity)
  }

  @Test("a commit's changes are counted as changes, not as bytes")
  func commits() throws {
    let registry = PrometheusRegistry()
    let size = Recorder(label: "imagefetch_store_commit_operations", factory: registry)
    for count in [1, 3, 512, 600] { size.record(count) }
    let buckets = try Exposition(registry.render()).samples.filter { $0.id.contains("_bucket") }
    #expect(buckets.map(\.value) == [1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 4])
  }

  @Test("the process metrics have Linux's values")
  func process() throws {
    let samples = try Exposition(ProcessMetrics.render()).samples
    let values = Dictionary(uniqueKeysWithValues: samples.map { ($0.id, $0.value) })
    #expect(values.count == 6)
    #expect(try #require(values["process_resident_memory_bytes"]) > 1_048_576)
    #expect(try #require(values["process_open_fds"]) >= 3)
    #expect(try #require(values["process_threads"]) >= 1)
    #expect(try #require(values["process_start_time_seconds"]) > 1_700_000_000)
  }

  @Test("no increment is lost when many threads count")
  func concurrent() async throws {
    let registry = PrometheusRegistry()
    await withTaskGroup { group in
      for _ in 0..<8 {
        group.addTask {
          for index in 0..<2000 {
            Counter(label: "c", dimensions: [("n", "\(index % 3)")], factory: registry).increment()
            Timer(label: "t", factory: registry).recordNanoseconds(1_000_000_000)
            FloatingPointCounter(label: "f", factory: registry).increment(by: 0.5)
          }
        }
      }
    }
    let samples = try Exposition(registry.render()).samples
    #expect(samples.filter { $0.id.hasPrefix("c_total") }.map(\.value).reduce(0, +) == 16_000)
    #expect(samples.first { $0.id == "t_seconds_count" }?.value == 16_000)
    #expect(samples.first { $0.id == "t_seconds_sum" }?.value == 16_000)
    #expect(samples.first { $0.id == "f_total" }?.value == 8000)
  }
}

/// A strict parser for Prometheus's text format 0.0.4.
private struct Exposition {
  struct Malformed: Error {
    let line: Substring
  }
  private(set) var samples: [(id: String, value: Double)] = []

  init(_ text: String) throws {
    var types: [Substring: Substring] = [:]
    let name = #/[a-zA-Z_:][a-zA-Z0-9_:]*/#
    let sample =
      #/([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)+\})? (\S+)/#
    for line in text.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
      if let match = line.wholeMatch(of: #/# TYPE (\S+) (counter|gauge|histogram)/#) {
        guard types.updateValue(match.2, forKey: match.1) == nil else {
          throw Malformed(line: line)
        }
        guard match.1.wholeMatch(of: name) != nil else { throw Malformed(line: line) }
      } else if line.hasPrefix("# HELP ") {
        continue
      } else {
        guard let match = line.wholeMatch(of: sample), let value = Exposition.number(match.3) else {
          throw Malformed(line: line)
        }
        let family = match.1.replacing(#/_(bucket|sum|count)$/#, with: "")
        guard types[match.1] != nil || types[family] == "histogram" else {
          throw Malformed(line: line)
        }
        guard types[match.1] != "counter" || match.1.hasSuffix("_total") else {
          throw Malformed(line: line)
        }
        samples.append((String(match.1) + (match.2 ?? ""), value))
      }
    }
    guard text.isEmpty || text.hasSuffix("\n") else { throw Malformed(line: text.suffix(20)) }
  }

  private static func number(_ text: Substring) -> Double? {
    switch text {
    case "+Inf": .infinity
    case "-Inf": -.infinity
    case "NaN": .nan
    default: Double(text)
    }
  }
}
