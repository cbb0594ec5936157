import Foundation
import Jobs
import TestSupport
import Testing

@Suite("A job's record")
struct RecordTests {
  /// Jobs that together have every kind of field.
  private static let jobs: [Job] = {
    var queued = Job.sample(
      1, tags: ["", "\"quoted\\ \u{0}\n\t\u{1F}\u{7F}", "ü€😀", "a\u{2028}b/"])
    _ = queued.edit(priority: .veryHigh, tags: nil)
    var submission = Submission(
      source: .url(
        SourceURL("https://example.org/a")!, lowData: SourceURL("http://[::1]:8080/b?c=d")))
    submission.alternatives = [SourceURL("http://example.com/ä")!]
    submission.headers = [HeaderField(name: "Accept", value: "*/*")]
    submission.timeout = .milliseconds(1_500)
    submission.retention = .seconds(-1)
    submission.maxBytes = .max
    submission.integrity = .sample(7)
    submission.cacheMode = .onlyIfCached
    var loading = Job(
      id: JobID(at: .at(2)), owner: .anonymous, submission: submission, priority: .veryLow,
      tags: [], createdAt: Timestamp(milliseconds: .min / 4))
    loading.start(at: Timestamp(milliseconds: .max / 4))
    loading.report(.init(completed: 3, total: 9, resumedFrom: 1))
    var success = Job.sample(3, captured: (.sample(1), bytes: 12))
    success.start(at: .at(4))
    success.succeed(with: .sample(1), bytes: 12, at: .at(5))
    var failures: [Job] = []
    for failure: JobFailure in [
      .internal, .codec(.unsupportedFormat(name: nil)), .localNotFound(name: "\u{1}"),
      .codec(.tooManyPixels(width: 1, height: 2, limit: 3)),
      .integrityMismatch(expected: .sample(1), actual: .sample(2)),
    ] {
      var job = Job.sample(6)
      job.fail(failure, at: .at(7), keptFor: .seconds(8))
      failures.append(job)
    }
    var lowData = Job.sample(9)
    _ = lowData.cancel(at: .at(10), keptFor: .zero)
    _ = lowData.fetchAgain(at: .at(11), from: .lowData)
    var alternative = lowData
    alternative.start(at: .at(12))
    alternative.continueTry(with: .alternative(2), after: .fetch(.originStatus(503, retryAfter: 7)))
    var retried = Job.sample(13)
    retried.start(at: .at(14))
    retried.retry(after: .fetch(.timeout(seconds: 0.5)), from: .regular, notBefore: .at(15))
    return [queued, loading, success, lowData, alternative, retried] + failures
  }()

  @Test("a job is read as it was stored, apart from its submission or with it", arguments: jobs)
  func roundTrip(job: Job) throws {
    #expect(try StoredJSON.decode(Job.self, from: StoredJSON.encode(job)) == job)
    let submission = try StoredJSON.encode(job.submission)
    let apart = StoredJSON.Context(submission: job.submission)
    let record = try StoredJSON.encode(job, without: apart)
    #expect(!String(decoding: record, as: UTF8.self).contains("example.org"))
    let read = StoredJSON.Context(
      submission: try StoredJSON.decode(Submission.self, from: submission))
    #expect(try StoredJSON.decode(Job.self, from: record, with: read) == job)
  }

  @Test("a record contains hosts that are spelled differently for requests")
  func hosts() throws {
    let url = try #require(SourceURL("http://ＢÜcher.example:81/"))
    var submission = Submission(source: .url(url, lowData: SourceURL("http://127.1/")))
    let fetcher = ScriptedFetcher(
      spellings: [url.host: "xn--bcher-kva.example", "127.1": "127.0.0.1"])
    submission.spellHosts(by: fetcher)
    let job = Job(
      id: JobID(at: .at(1)), owner: .anonymous, submission: submission, priority: .normal, tags: [],
      createdAt: .at(1))
    let read = try StoredJSON.decode(Job.self, from: StoredJSON.encode(job))
    #expect(read == job && read.origin == "http://xn--bcher-kva.example:81")
    #expect(read.url == url)
    let plain = try StoredJSON.encode(Job.sample(1))
    #expect(!String(decoding: plain, as: UTF8.self).contains("hosts"))
  }

  private static func unicode(_ text: String) throws -> Submission {
    let url = try #require(SourceURL("http://\(text)/"))
    var submission = Submission(source: .url(try #require(SourceURL("http://a/")), lowData: nil))
    submission.cacheKey = text
    // Short defaults are not shared.
    submission.headers = [
      HeaderField(name: "X", value: text),
      HeaderField(name: "Y", value: String(repeating: "y", count: 8_000)),
    ]
    submission.alternatives = [url]
    submission.webhook = Webhook(url: url, events: [.jobSuccess])
    submission.deliveries = [DeliveryRequest(.put(url, headers: []), variant: text)]
    return submission
  }

  @Test("a text that differs from the batch's only in its Unicode form is kept")
  func unicodeForms() throws {
    let defaults = try #require(
      SharedDefaults(of: NewJob(submission: Self.unicode("\u{E9}\u{212B}"))))
    let own = try Self.unicode("e\u{301}A\u{30A}")
    var submission = own
    submission.defaults = defaults
    let job = Job(
      id: JobID(at: .at(1)), owner: .anonymous, submission: submission, priority: .normal, tags: [],
      createdAt: .at(1))
    let context = StoredJSON.Context(defaults: defaults)
    let read = try StoredJSON.decode(
      Job.self, from: StoredJSON.encode(job, without: context), with: context)
    func told(_ submission: Submission) -> [UInt8] {
      let texts: [Any?] = [
        submission.cacheKey, submission.headers, submission.alternatives, submission.webhook,
        submission.deliveries,
      ]
      return Array("\(texts)".utf8)
    }
    #expect(told(read.submission) == told(own))
    #expect(told(try Self.unicode("\u{E9}\u{212B}")) != told(own))
  }

  @Test("a cache entry is read as it was stored, and a truncated one is an error")
  func cacheEntry() throws {
    let entry = try CacheEntry.sample(1, selector: 2, .sample(3), bytes: .max, response: 4)
    let record = try StoredJSON.encode(entry)
    var read = try StoredJSON.decode(CacheEntry.self, from: record)
    read.id = entry.id
    #expect(read == entry)
    for count in 0..<record.count {
      #expect(throws: (any Error).self) {
        try StoredJSON.decode(CacheEntry.self, from: Array(record.prefix(count)))
      }
    }
  }

  @Test("extreme numbers are kept")
  func numbers() throws {
    let values: [Int64] = [.min, -1, 0, 1, .max]
    #expect(try StoredJSON.decode([Int64].self, from: StoredJSON.encode(values)) == values)
    let doubles = [0.1, -1e300]
    #expect(try StoredJSON.decode([Double].self, from: StoredJSON.encode(doubles)) == doubles)
  }

  @Test("a truncated, foreign or too deeply nested record is an error and never a crash")
  func broken() throws {
    let record = try StoredJSON.encode(Self.jobs[1])
    for count in 0..<record.count {
      #expect(throws: (any Error).self) {
        try StoredJSON.decode(Job.self, from: Array(record.prefix(count)))
      }
    }
    for text in ["", "[]", "7", "null", String(repeating: "[", count: 100_000)] {
      #expect(throws: (any Error).self) {
        try StoredJSON.decode(Job.self, from: Array(text.utf8))
      }
    }
  }
}
