import TestSupport
import Testing

@Suite("A job's progress", .timeLimit(.minutes(15)))
struct ProgressTests {
  private let png = Fixtures.png
  private var half: Int { png.count / 2 }

  /// Returns all versions of a job that a polling client sees. The last one is the finished job.
  private func versions(
    of id: String, _ service: RunningService
  ) async throws -> [(job: ShownJob, seen: ContinuousClock.Instant)] {
    var versions: [(job: ShownJob, seen: ContinuousClock.Instant)] = []
    while versions.last?.job.isFinished != true {
      let job = try await service.job(id)
      if job.version != versions.last?.job.version { versions.append((job, .now)) }
    }
    return versions
  }

  @Test("progress grows with the job's version, step by step")
  func steps() async throws {
    try await withPipeline { service, origin in
      let counts = [png.count / 4, half, png.count - png.count / 4]
      let gates = [Gate(), Gate(), Gate()]
      let head = ScriptedReply.head(200, [("Content-Length", "\(png.count)")])
      origin.on(
        "/x",
        ScriptedReply(
          .send(head + png[..<counts[0]]), .hold(gates[0]),
          .send(Array(png[counts[0]..<counts[1]])), .hold(gates[1]),
          .send(Array(png[counts[1]..<counts[2]])), .hold(gates[2]),
          .send(Array(png[counts[2]...]))))
      let id = try await service.post(["url": origin.url("/x")])
      var shown: [ShownJob] = []
      for (count, gate) in zip(counts, gates) {
        let job = try await service.wait(for: id) { $0.progress.completed == count }
        #expect(job.phase == "loading" && job.progress.total == png.count)
        #expect(job.progress.fraction == Double(count) / Double(png.count))
        shown.append(job)
        gate.open()
      }
      shown.append(try await service.outcome(id))
      #expect(zip(shown, shown.dropFirst()).allSatisfy { $0.version < $1.version })
      #expect(shown.count(where: { $0.phase == "loading" }) == 3)
      #expect(shown[3].progress.completed == png.count && shown[3].progress.fraction == 1)
    }
  }

  @Test("progress is updated at most ten times per second and never decreases")
  func monotonic() async throws {
    try await withPipeline { service, origin in
      // About 1.4 s, with bytes every 10 ms.
      origin.on("/x", .dripped(png, size: 200, every: .milliseconds(10)))
      let id = try await service.post(["url": origin.url("/x")])
      let versions = try await versions(of: id, service)
      for (earlier, later) in zip(versions, versions.dropFirst()) {
        #expect(earlier.job.version < later.job.version)
        #expect(earlier.job.progress.completed <= later.job.progress.completed)
      }
      let loading = versions.filter { $0.job.phase == "loading" }
      // On a busy machine the job may end before the first request.
      if let first = loading.first, let last = loading.last {
        let seconds = (last.seen - first.seen) / .seconds(1)
        // The change to loading counts, too, and a delay may bring two updates close to each other.
        #expect(Double(loading.count) <= seconds * 10 + 3, "\(loading.count) in \(seconds) s")
      }
      for progress in loading.map(\.job.progress) where progress.completed > 0 {
        #expect(progress.total == png.count)
        #expect(progress.fraction == Double(progress.completed) / Double(png.count))
      }
      #expect(versions.last?.job.progress.fraction == 1)
    }
  }

  @Test("the total is known once the image is complete, even if the origin did not say it")
  func chunked() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      let head = ScriptedReply.head(200, [("Transfer-Encoding", "chunked")])
      origin.on(
        "/x",
        ScriptedReply(
          .send(head + ScriptedReply.chunk(Array(png[..<half]))), .hold(gate),
          .send(ScriptedReply.chunk(Array(png[half...])) + ScriptedReply.chunk([]))))
      let id = try await service.post(["url": origin.url("/x")])
      let shown = try await service.wait(for: id) { $0.progress.completed == half }
      #expect(shown.progress.total == nil && shown.progress.fraction == nil)
      gate.open()
      let end = try await service.outcome(id).progress
      #expect(end.completed == png.count && end.total == png.count && end.fraction == 1)
    }
  }

  @Test("a resumed transfer counts the bytes that it already had")
  func resumed() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      let image = Representation(png, etag: "\"v1\"")
      let more = png.count * 3 / 4
      origin.on(
        "/x", inOrder: { image.reply(to: $0, breakingAt: half) },
        { image.reply(to: $0, holdingAt: more, for: gate) })
      let id = try await service.post(["url": origin.url("/x")])
      let shown = try await service.wait(for: id) {
        $0.attempts == 2 && $0.progress.completed > half
      }
      #expect(shown.progress.completed == more && shown.progress.resumedFrom == half)
      #expect(shown.progress.total == png.count)
      gate.open()
      let end = try await service.outcome(id).progress
      #expect(end.completed == png.count && end.total == png.count && end.resumedFrom == half)
    }
  }

  @Test("all jobs that share a transfer have the same progress")
  func shared() async throws {
    try await withPipeline { service, origin in
      let gate = Gate()
      origin.on("/x", .held(png, after: half, by: gate))
      let ids = try await service.post(batch: Array(repeating: ["url": origin.url("/x")], count: 3))
      for id in ids {
        let shown = try await service.wait(for: id) { $0.progress.completed == half }
        #expect(shown.progress.total == png.count && shown.progress.resumedFrom == 0)
      }
      gate.open()
      for job in try await service.outcomes(ids) { #expect(job.progress.completed == png.count) }
    }
  }

  @Test("a job answered by the cache has the progress of the complete image")
  func cached() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(png))
      _ = try await service.run(["url": origin.url("/x")])
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.cache?.status == "hit")
      #expect(job.progress.completed == png.count && job.progress.total == png.count)
      #expect(job.progress.fraction == 1 && job.progress.resumedFrom == 0)
    }
  }

  @Test("a failed job keeps the progress of its broken transfer")
  func failed() async throws {
    try await withPipeline(["jobs.max_attempts": "1"]) { service, origin in
      origin.on("/x", .truncated(png, after: half))
      let job = try await service.run(["url": origin.url("/x")])
      #expect(job.error?.code == "truncated")
      #expect(job.progress.completed == half && job.progress.total == png.count)
    }
  }

  @Test("a job has the time that each step took")
  func timings() async throws {
    try await withPipeline(["jobs.workers": "1"]) { service, origin in
      let gate = Gate()
      origin.on("/first", .held(Fixtures.smallPNG, by: gate))
      origin.on(
        "/x",
        ScriptedReply(
          [.pause(.milliseconds(60))]
            + ScriptedReply.dripped(
              png, size: half + 1, every: .milliseconds(80)
            ).steps))
      let first = try await service.post(["url": origin.url("/first")])
      #expect(await origin.waitForRequests(to: "/first"))
      let id = try await service.post(["url": origin.url("/x")])
      let submitted = ContinuousClock.now
      // The job waits at least this long, whenever it starts.
      try await Task.sleep(for: .milliseconds(30))
      let waited = (ContinuousClock.now - submitted) / .milliseconds(1)
      gate.open()
      _ = try await service.outcome(first)
      let job = try await service.outcome(id)
      let timings = job.timings
      #expect(try #require(timings.queuedMs) >= waited - 1)
      #expect(try #require(timings.dnsMs) >= 0 && timings.tlsMs == 0)
      #expect(try #require(timings.connectMs) >= 0)
      let firstByte = try #require(timings.firstByteMs)
      let body = try #require(timings.bodyMs)
      let fetch = try #require(timings.fetchMs)
      #expect(firstByte >= 55 && body >= 70, "\(timings)")
      #expect(abs(firstByte + body - fetch) < 1, "\(timings)")
      #expect(try #require(timings.decodeMs) > 0)
      // A step that was skipped has no time.
      let hit = try await service.run(["url": origin.url("/x")])
      #expect(hit.cache?.status == "hit" && hit.timings.queuedMs != nil)
      #expect(hit.timings.fetchMs == nil && hit.timings.decodeMs == nil)
    }
  }
}
