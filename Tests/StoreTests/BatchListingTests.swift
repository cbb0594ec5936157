import GRDB
import Jobs
import TestSupport
import Testing

@testable import Store

@Suite("A page of SQLite's batches")
struct BatchListingTests {
  @Test("a page is short after the maximum number of reads, and the next page continues there")
  func looks() async throws {
    let jobs = try OpenJobs()
    let store = jobs.store
    let batches = (0..<8).map { Batch.sample($0, owner: $0 % 4 == 3 ? "ben" : "anna") }
    for batch in batches { _ = try await store.base.open(batch, key: nil) }
    _ = try await store.base.close(batches[0].id)
    // For one owner, and for all.
    let cases: [(owner: Owner?, most: Int, last: [Int])] = [
      (Owner("anna"), 4, [2]), (nil, 3, [5, 2]),
    ]
    for (owner, most, numbers) in cases {
      var query = BatchQuery(owner: owner, now: .at(0), limit: 1)
      query.states = [.finished]
      for last in numbers {
        let page = try await store.read { [query] in
          try BatchListing(query: query, maxRowsPerPage: most).page($0)
        }
        #expect(page.batches.isEmpty && page.hasMore)
        #expect(page.last == batches[last].id)
        query.before = page.last
      }
      let page = try await store.read { [query] in
        try BatchListing(query: query, maxRowsPerPage: most).page($0)
      }
      #expect(page.batches.map(\.id) == [batches[0].id] && !page.hasMore)
    }
    await store.close()
  }
}
