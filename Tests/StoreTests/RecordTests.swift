import Foundation
import Jobs
import TestSupport
import Testing

@testable import Records

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

  @Test(
    "a record is JSON that decodes to the same job, also with Foundation's coder", arguments: jobs)
  func roundTrip(job: Job) throws {
    let record = try JobRecord.data(of: job)
    #expect(try JobRecord.job(from: record) == job)
    #expect(try JSONDecoder().decode(Job.self, from: record) == job)
    #expect(try JobRecord.job(from: JSONEncoder().encode(job)) == job)
    let pretty = JSONEncoder()
    pretty.outputFormatting = [.prettyPrinted, .sortedKeys]
    #expect(try JobRecord.job(from: pretty.encode(job)) == job)
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
    let read = try JobRecord.job(from: JobRecord.data(of: job))
    #expect(read == job && read.origin == "http://xn--bcher-kva.example:81")
    #expect(read.url == url)
    #expect(try JobRecord.job(from: JSONEncoder().encode(job)) == job)
    #expect(!String(decoding: try JobRecord.data(of: .sample(1)), as: UTF8.self).contains("hosts"))
  }

  @Test("a cache entry's record decodes to the same entry, also with Foundation's coder")
  func cacheEntry() throws {
    let entry = try CacheEntry.sample(1, selector: 2, .sample(3), bytes: .max, response: 4)
    let record = try CacheRecord.data(of: entry)
    #expect(try CacheRecord.entry(from: record) == entry)
    #expect(try JSONDecoder().decode(CacheEntry.self, from: record) == entry)
    #expect(try CacheRecord.entry(from: JSONEncoder().encode(entry)) == entry)
    for count in 0..<record.count {
      #expect(throws: (any Error).self) { try CacheRecord.entry(from: record.prefix(count)) }
    }
  }

  @Test("a record keeps extreme numbers, and numbers out of range are refused")
  func numbers() throws {
    let values: [Int64] = [.min, -1, 0, 1, .max]
    #expect(try RecordDecoder.decode([Int64].self, from: RecordEncoder.encode(values)) == values)
    #expect(throws: DecodingError.self) {
      try RecordDecoder.decode([Int8].self, from: [UInt8]("[128]".utf8))
    }
    #expect(throws: DecodingError.self) {
      try RecordDecoder.decode([UInt].self, from: [UInt8]("[-1]".utf8))
    }
    #expect(throws: EncodingError.self) { try RecordEncoder.encode([Double.infinity]) }
    #expect(
      try RecordDecoder.decode([Double].self, from: RecordEncoder.encode([0.1, -1e300])) == [
        0.1, -1e300,
      ])
  }

  @Test(
    "a text that is no record is an error and never a crash",
    arguments: [
      "", " ", "{", "[", "\"", "\"\\", "\"\\\"", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":1",
      "{\"a\":1,",
      "{\"a\":1,}", "[1,", "[1 2]", "nul", "tru", "-", "[-]", "{}x", "\u{0}", "{\"\\u0061\":1}",
      "[1]]",
    ])
  func broken(text: String) {
    #expect(throws: (any Error).self) {
      try RecordDecoder.decode([Int].self, from: Array(text.utf8))
    }
    #expect(throws: (any Error).self) { try JobRecord.job(from: Data(text.utf8)) }
  }

  @Test("a truncated or too deeply nested record is an error")
  func cut() throws {
    let record = try JobRecord.data(of: Self.jobs[1])
    for count in 0..<record.count {
      #expect(throws: (any Error).self) { try JobRecord.job(from: record.prefix(count)) }
    }
    let deep = [UInt8](repeating: UInt8(ascii: "["), count: 100_000)
    #expect(throws: RecordTextError.self) { try RecordParser.parse(deep) }
  }
}

private enum JobRecord {
  static func data(of job: Job) throws -> Data { Data(try RecordEncoder.encode(job)) }

  static func job(from data: Data) throws -> Job {
    try RecordDecoder.decode(Job.self, from: Array(data))
  }
}

private enum CacheRecord {
  static func data(of entry: CacheEntry) throws -> Data { Data(try RecordEncoder.encode(entry)) }

  static func entry(from data: Data) throws -> CacheEntry {
    try RecordDecoder.decode(CacheEntry.self, from: Array(data))
  }
}
