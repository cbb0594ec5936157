import Jobs
import SQL
import TestSupport
import Testing

@testable import Engine

@Suite("Following a batch", .timeLimit(.minutes(15)))
struct BatchWatchTests {
  private static func batch(_ store: MemoryJobStore) async throws -> Batch {
    let batch = Batch(
      id: JobID(at: Timestamp(milliseconds: 1)), owner: .anonymous, retention: .seconds(60),
      createdAt: Timestamp(milliseconds: 1))
    _ = try await store.open(batch, key: nil)
    return batch
  }

  /// The store is read at the same interval for one follower and for a thousand.
  @Test("followers of a batch share one read of the store, which stops after the last one")
  func shared() async throws {
    let store = MemoryJobStore()
    let batch = try await Self.batch(store)
    let watches = BatchWatches(store: store)
    var start = ContinuousClock.now
    var first = 0
    try await withThrowingTaskGroup(of: Int.self) { group in
      for _ in 0..<200 {
        let changes = watches.follow(batch.id)
        group.addTask {
          var states: [Batch.State] = []
          for await batch in changes {
            guard let batch else { break }
            states.append(batch.state)
            if batch.state == .finished { break }
          }
          #expect(states == [.receiving, .finished] || states == [.finished])
          return states.count
        }
      }
      // Each new follower may cause a read.
      try await Task.sleep(for: .milliseconds(300))
      (first, start) = (await store.calls.count(of: .batch), .now)
      try await Task.sleep(for: .milliseconds(500))
      _ = try await store.close(batch.id)
      for try await _ in group {}
    }
    let most = Int((ContinuousClock.now - start) / .milliseconds(200)) + 2
    #expect(await store.calls.count(of: .batch) <= first + most)
    // Ending the last stream stops the reads.
    try await Task.sleep(for: .milliseconds(300))
    let looks = await store.calls.count(of: .batch)
    try await Task.sleep(for: .milliseconds(500))
    #expect(await store.calls.count(of: .batch) == looks)
  }

  @Test("the first state that a new follower gets is not older than its request")
  func current() async throws {
    let store = MemoryJobStore()
    let batch = try await Self.batch(store)
    let watches = BatchWatches(store: store)
    var earlier = watches.follow(batch.id).makeAsyncIterator()
    #expect(await earlier.next()??.state == .receiving)
    _ = try await store.close(batch.id)
    var later = watches.follow(batch.id).makeAsyncIterator()
    #expect(await later.next()??.state == .finished)
  }

  @Test("a followed batch's stream ends when the batch is purged or the service stops")
  func ends() async throws {
    let store = MemoryJobStore()
    let batch = try await Self.batch(store)
    let watches = BatchWatches(store: store)
    var changes = watches.follow(batch.id).makeAsyncIterator()
    #expect(await changes.next()??.id == batch.id)
    _ = try await store.purge(batch.id)
    #expect(await changes.next() == .some(nil))
    #expect(await changes.next() == nil)

    let other = try await Self.batch(store)
    var others = watches.follow(other.id).makeAsyncIterator()
    watches.close()
    while let batch = await others.next() { #expect(batch?.id == other.id) }
    var late = watches.follow(other.id).makeAsyncIterator()
    #expect(await late.next() == nil)
  }
}
