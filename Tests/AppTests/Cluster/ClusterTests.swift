import Foundation
import TestSupport
import Testing

@Suite("A service of several instances", .timeLimit(.minutes(15)))
struct ClusterTests {
  private let filed = Fixtures.filedPNG

  @Test(
    "each instance reports the same job: its state, its end for waiting clients, and its events")
  func followed() async throws {
    try await Cluster.open { cluster, origin in
      let gate = Gate()
      origin.on("/x", .held(filed, after: 40_000, by: gate))
      let (id, a, b, c) = try await cluster.loading(origin.url("/x"))
      try await a.wait(for: id) { $0.progress.completed == 40_000 }
      for other in [b, c] { #expect(try await other.job(id).phase == "loading") }
      let listeners = try [a, b, c].map { try Listener.eventSource("\($0.base)/jobs/\(id)/events") }
      for listener in listeners {
        try await eventually { Event.all(listener).last?.job.progress.completed == 40_000 }
      }
      // A client that waits for a newer version is answered when the job ends.
      let seen = try await b.job(id)
      async let waited = b.get("/jobs/\(id)?wait=30")
      gate.open()
      #expect(try await waited.json()["phase"] as? String == "success")
      let jobs = try await [a.outcome(id), b.outcome(id), c.outcome(id)]
      #expect(Set(jobs.map(\.phase)) == ["success"] && Set(jobs.map(\.version)).count == 1)
      #expect(jobs[1].version > seen.version)
      for listener in listeners {
        #expect(try await listener.ended() == 0)
        let events = Event.all(listener)
        #expect(events.last?.job.phase == "success" && events.last?.job.version == jobs[0].version)
        #expect(events.count { $0.type == "image" } == 1)
        let versions = events.map(\.job.version)
        #expect(versions == versions.sorted())
      }
      let pages = try await [a, b, c].asyncMap { try await $0.all("success") }
      #expect(pages.allSatisfy { $0 == [id] })
      #expect(origin.requests.count == 1)
    }
  }

  @Test(
    "each instance accepts changes: priority, If-Match, and a cancellation that closes the transfer"
  )
  func changed() async throws {
    try await Cluster.open { cluster, origin in
      let gate = Gate()
      origin.on("/x", .held(filed, after: 40_000, by: gate))
      let (id, a, b, c) = try await cluster.loading(origin.url("/x"))
      try await b.setPriority(of: id, to: "high")
      #expect(try await c.job(id).priority == "high")
      try await eventually { try await a.job(id).priority == "high" }

      let tag = try #require(try await c.get("/jobs/\(id)").headers["etag"])
      #expect(try await patch(id, at: b, ifMatch: tag, tags: ["one"]).status == 200)
      #expect(try await patch(id, at: c, ifMatch: tag, tags: ["two"]).status == 412)
      let next = try #require(try await b.get("/jobs/\(id)").headers["etag"])
      #expect(try await patch(id, at: c, ifMatch: next, tags: ["two"]).status == 200)

      let began = ContinuousClock.now
      try await b.cancel(id)
      let closed = try #require(await origin.waitForClose(of: origin.requests[0].connection))
      // Time for a busy machine, but much less than any timeout.
      #expect(closed - began < .seconds(15), "\(closed - began)")
      for service in [c, a] {
        try await eventually { try await service.job(id).phase == "cancelled" }
      }
      gate.open()
      try await c.fetchAgain(id)
      #expect(
        try await b.job(id).phase != "cancelled", "what was written through one is read through any"
      )
      #expect(try await b.outcome(id).phase == "success")
    }
  }

  private func patch(
    _ id: String, at service: RunningService, ifMatch: String, tags: [String]
  ) async throws -> RunningService.Answer {
    try await service.send(
      "PATCH", "/jobs/\(id)",
      headers: ["Content-Type": "application/merge-patch+json", "If-Match": ifMatch],
      body: JSONSerialization.data(withJSONObject: ["tags": tags]))
  }

  @Test("a purged job is gone from each instance, its transfer stops, and no object is left")
  func purged() async throws {
    try await Cluster.open { cluster, origin in
      origin.on("/x", .stalled(filed, after: 40_000))
      origin.on("/y", .ok(filed))
      let (id, a, b, c) = try await cluster.loading(origin.url("/x"))
      #expect(try await b.send("DELETE", "/jobs/\(id)?purge=true").status == 204)
      #expect(await origin.waitForClose(of: origin.requests[0].connection) != nil)
      let done = try await c.run(["url": origin.url("/y")]).id
      for service in [a, b, c] { #expect(try await service.image(of: done) == filed) }
      #expect(try await cluster.bucket.keys.count == 1)
      for service in [a, b, c] { #expect(try Self.copies(service) == 1) }
      #expect(try await a.send("DELETE", "/jobs/\(done)?purge=true").status == 204)
      for service in [a, b, c] {
        try await eventually { try await service.get("/jobs/\(id)").status == 404 }
        try await eventually { try await service.get("/jobs/\(done)/image").status == 404 }
      }
      try await eventually { try await cluster.bucket.keys.isEmpty }
      for service in [a, b, c] { try await eventually { try Self.copies(service) == 0 } }
    }
  }

  /// The number of the bucket's images that the service has on its own disk.
  private static func copies(_ service: RunningService) throws -> Int {
    let found = FileManager.default.enumerator(atPath: service.folder + "/data/copies")
    return found?.allObjects.count { "\($0)".split(separator: "/").last?.count == 62 } ?? 0
  }

  @Test("a repeated Idempotency-Key returns the same jobs from every instance")
  func repeated() async throws {
    try await Cluster.open { cluster, origin in
      origin.on("/x", .ok(Fixtures.smallPNG))
      let headers = ["Idempotency-Key": "\"once\"", "Content-Type": "application/json"]
      func post(_ service: RunningService, _ path: String) async throws -> RunningService.Answer {
        try await service.send(
          "POST", "/jobs", headers: headers,
          body: JSONSerialization.data(withJSONObject: ["url": origin.url(path)]))
      }
      // All at the same time.
      let ids = try await withThrowingTaskGroup { group in
        for number in 0..<12 {
          group.addTask {
            try await post(cluster[number % 3], "/x").json()["id"] as? String
          }
        }
        return try await group.reduce(into: Set<String?>()) { $0.insert($1) }
      }
      let id = try #require(ids.first ?? nil)
      #expect(ids.count == 1)
      for service in cluster.services {
        #expect(try await service.outcome(id).phase == "success")
        #expect(try await service.all("success") == [id])
        #expect(try await post(service, "/other").status == 422)
      }
      #expect(origin.requests.count == 1)
    }
  }

  @Test("instances share the cache and the network state, including deletions")
  func cached() async throws {
    try await Cluster.open { cluster, origin in
      let fields = [("Cache-Control", "max-age=600")]
      origin.on("/small", .ok(Fixtures.smallPNG, headers: fields))
      origin.on("/filed", .ok(filed, headers: fields))
      let (a, b, c) = (cluster[0], cluster[1], cluster[2])
      for path in ["/small", "/filed"] {
        let first = try await a.run(["url": origin.url(path)])
        #expect(first.cache?.status == "miss")
        for other in [b, c] {
          let next = try await other.run(["url": origin.url(path)])
          #expect(next.cache?.status == "hit", "\(next.summary)")
          #expect(next.image?.sha256 == first.image?.sha256)
          _ = try await other.image(of: next.id)
        }
      }
      #expect(origin.requests.count == 2)
      func memory(_ service: RunningService) async throws -> Int? {
        try await service.get("/cache").json()["memory_bytes"] as? Int
      }
      #expect(try await memory(c) ?? 0 > 0)
      #expect(try await b.send("DELETE", "/cache").status == 200)
      for service in cluster.services { try await eventually { try await memory(service) == 0 } }
      #expect(try await a.run(["url": origin.url("/small")]).cache?.status == "miss")
      #expect(origin.requests(to: "/small").count == 2)

      try await c.setConstrained(true)
      for service in cluster.services {
        try await eventually {
          try await service.get("/network").json()["constrained"] as? Bool == true
        }
      }
    }
  }

  @Test("each instance serves an image and its variants, completely and in parts")
  func images() async throws {
    try await Cluster.open { cluster, origin in
      origin.on("/small", .ok(Fixtures.smallPNG))
      origin.on("/filed", .ok(filed))
      for (path, bytes) in [("/small", Fixtures.smallPNG), ("/filed", filed)] {
        let id = try await cluster[0].run(["url": origin.url(path)]).id
        var tags: Set<String?> = []
        var variants: Set<Data> = []
        for service in cluster.services {
          let whole = try await service.get("/jobs/\(id)/image")
          #expect(whole.status == 200 && Array(whole.body) == bytes)
          tags.insert(whole.headers["etag"])
          let range = ["Range": "bytes=100-199", "If-Range": whole.headers["etag"] ?? ""]
          let part = try await service.get("/jobs/\(id)/image", headers: range)
          #expect(part.status == 206 && Array(part.body) == Array(bytes[100..<200]))
          let variant = try await service.get("/jobs/\(id)/image?width=6&format=png")
          #expect(variant.status == 200)
          variants.insert(variant.body)
        }
        #expect(tags.count == 1 && variants.count == 1)
      }
    }
  }
}

extension Sequence {
  func asyncMap<Value>(_ transform: (Element) async throws -> Value) async rethrows -> [Value] {
    var values: [Value] = []
    for element in self { values.append(try await transform(element)) }
    return values
  }
}
