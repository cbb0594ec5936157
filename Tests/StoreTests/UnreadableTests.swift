import Foundation
import GRDB
import Jobs
import Testing

@testable import Store

/// A database that a disk, a person or another program has changed.
@Suite("A job whose row makes no sense")
struct UnreadableTests {
  /// What was done to the row of a job that was loading.
  static let damages: [(name: String, sql: String)] = [
    ("no record", "record = x'7B'"),
    ("taken while loading", "claimed_at = 5, " + replacing("queued", by: "loading")),
    ("taken while done", "claimed_at = 5, " + replacing("queued", by: "success")),
    ("another phase", "claimed_at = NULL"),
    ("another owner's", replacing("anna", by: "bert")),
    ("an unknown phase", "phase = 9"), ("waiting for nothing known", "waiting = 9"),
  ]

  private static func replacing(_ word: String, by other: String) -> String {
    "record = CAST(replace(CAST(record AS TEXT), '\"\(word)\"', '\"\(other)\"') AS BLOB)"
  }

  @Test("is an error for itself; the store starts and gives the others", arguments: damages)
  func damaged(name: String, sql: String) async throws {
    let jobs = try OpenJobs()
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    #expect(try await jobs.store.claim(2, at: .at(9)).jobs.count == 2)
    try jobs.store.onWriter { db in
      try db.execute(
        sql: "UPDATE jobs SET \(sql) WHERE id = ?", arguments: [batch[0].id.data])
    }
    let store = try await jobs.reopened()
    #expect(try await store.recover() == 1)
    #expect(try await store.claim(9, at: .at(10)).jobs.map(\.job.id) == [batch[1].id, batch[2].id])
    let error = await #expect(throws: StoreError.self) { try await store.job(batch[0].id) }
    guard case .unreadable(let detail) = try #require(error) else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(!detail.contains("example.org"), "a record holds credentials")
    await #expect(throws: StoreError.self) {
      try await store.update(batch[0].id, under: nil) { $0.edit(priority: .high, tags: nil) }
    }
    await #expect(throws: StoreError.self) { try await store.remove(batch[0].id) }
    var query = JobQuery(owner: nil, now: .at(10), limit: 9)
    #expect(try await store.jobs(query).jobs.map(\.id) == [batch[2].id, batch[1].id])
    query.phases = Set(Phase.allCases)
    #expect(try await store.jobs(query).jobs.map(\.id) == [batch[2].id, batch[1].id])
    _ = try await store.expire(9, at: .at(.max / 2))
    await store.close()
  }

  @Test("holds up nobody in the queue, whatever its place there")
  func queued() async throws {
    let jobs = try OpenJobs()
    let batch = (0..<5).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    try jobs.store.onWriter { db in
      try db.execute(
        sql: "UPDATE jobs SET record = x'7B' WHERE id IN (?, ?)",
        arguments: [batch[0].id.data, batch[1].id.data])
      try db.execute(
        sql: "UPDATE jobs SET priority = 99 WHERE id = ?", arguments: [batch[3].id.data])
    }
    let store = try await jobs.reopened()
    // Who gets none takes the queue for empty.
    #expect(try await store.claim(1, at: .at(9)).jobs.map(\.job.id) == [batch[3].id])
    #expect(try await store.claim(1, at: .at(9)).jobs.map(\.job.id) == [batch[2].id])
    #expect(try await store.claim(1, at: .at(9)).jobs.map(\.job.id) == [batch[4].id])
    #expect(try await store.claim(1, at: .at(9)).jobs.isEmpty)
    await store.close()
  }

  @Test("ends no listing, where a page holds no others")
  func listed() async throws {
    let jobs = try OpenJobs()
    let batch = (0..<5).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    try jobs.store.onWriter { db in
      try db.execute(
        sql: "UPDATE jobs SET record = x'7B' WHERE id <> ?", arguments: [batch[0].id.data])
    }
    let page = try await jobs.store.jobs(JobQuery(owner: nil, now: .at(9), limit: 2))
    #expect(page.jobs.map(\.id) == [batch[0].id] && !page.hasMore)
    await jobs.store.close()
  }

  @Test("with a priority that there is none of keeps its origin's other jobs from nothing")
  func parked() async throws {
    let jobs = try OpenJobs()
    let batch = (0..<3).map { Job.sample($0) }
    _ = try await jobs.store.submit(batch, key: nil, capacity: 9)
    let none = OriginRoom(usual: 0)
    #expect(try await jobs.store.claim(3, at: .at(9), room: none).jobs.isEmpty)
    try jobs.store.onWriter { db in
      try db.execute(
        sql: "UPDATE jobs SET priority = -7 WHERE id = ?", arguments: [batch[0].id.data])
    }
    let store = try await jobs.reopened()
    _ = try await store.recover()
    let claimed = try await store.claim(3, at: .at(9)).jobs.map(\.job.id)
    #expect(claimed.contains(batch[1].id) && claimed.contains(batch[2].id))
    await store.close()
  }
}
