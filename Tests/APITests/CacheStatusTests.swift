import API
import HTTPTypes
import Jobs
import Testing

@Suite("Cache-Status")
struct CacheStatusTests {
  let client = Client()

  @Test(
    "Cache-Status shows how the cache was used",
    arguments: [
      (.hit, .default, 60_000, "hit; ttl=60"), (.hit, .default, -60_000, "hit; ttl=-60"),
      (.hit, .forceCache, nil, "hit"), (.stale, .default, -500, "hit; ttl=-1"),
      (.stale, .default, 999, "hit; ttl=0"),
      (.revalidated, .default, 60_000, "fwd=stale; fwd-status=304; ttl=60"),
      (.revalidated, .default, nil, "fwd=stale; fwd-status=304"),
      (.revalidated, .noCache, 1000, "fwd=request; fwd-status=304; ttl=1"),
      (.miss, .default, 60_000, "fwd=uri-miss; stored; ttl=60"),
      (.miss, .default, nil, "fwd=uri-miss"), (.miss, .reload, 0, "fwd=request; stored; ttl=0"),
      (.bypass, .noStore, nil, "fwd=bypass"),
    ] as [(CacheOutcome.Status, CacheMode, Int?, String)])
  func tells(
    status: CacheOutcome.Status, mode: CacheMode, freshFor milliseconds: Int?, expected: String
  ) async throws {
    let id = try await client.succeeded(mode: mode) { now in
      CacheOutcome(status, age: 1, freshUntil: milliseconds.map { now + .milliseconds($0) })
    }
    let answer = await client.get("/jobs/\(id)/image")
    #expect(answer.fields[.cacheStatus] == "imagefetch; \(expected)")
    #expect(await client.get("/jobs/\(id)").json?["cache"]?["status"] == .string(status.rawValue))
  }

  @Test("Cache-Status is bypass for images that never use the cache")
  func bypass() async throws {
    let id = try await client.succeeded { _ in nil }
    #expect(
      await client.get("/jobs/\(id)/image").fields[.cacheStatus] == "imagefetch; fwd=bypass")
  }
}
