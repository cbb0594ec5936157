import Foundation
import Testing

@testable import Jobs
@testable import Store

@Suite("Cached rows of loading jobs")
struct LoadingRowCacheTests {
  private static func row(_ number: Int64, headerBytes: Int) throws -> JobRow {
    var submission = Submission(source: .url(SourceURL("https://a.example/x")!, lowData: nil))
    submission.headers = [
      HeaderField(name: "x-long", value: String(repeating: "a", count: headerBytes))
    ]
    var job = Job(
      id: JobID(at: .at(number)), owner: Owner("anna"), submission: submission, priority: .normal,
      tags: [], createdAt: .at(number))
    job.start(at: .at(number))
    return try JobRow(job, record: JobRecord.data(of: job))
  }

  @Test("the cache of rows is limited by bytes, however many long jobs a load has")
  func bounded() throws {
    let held = LoadingRowCache()
    let rows = try (0..<600).map { try Self.row($0, headerBytes: 64_000) }
    for row in rows { held.update(row) }
    #expect(held.bytes <= LoadingRowCache.mostBytes)
    #expect(held[rows[0].id] != nil && held[rows[599].id] == nil)
    // Released space can be used again.
    for row in rows { held.remove(row) }
    #expect(held.bytes == 0)
    held.update(rows[599])
    held.update(rows[599])
    let once = held.bytes
    #expect(once > 128_000 && once < 140_000)
    held.removeAll()
    #expect(held.bytes == 0 && held[rows[599].id] == nil)
  }
}
