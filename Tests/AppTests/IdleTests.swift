import Foundation
import Glibc
import TestSupport
import Testing

/// Only the service's own processor time is counted, so that other processes do not matter.
@Suite("A service without work", .timeLimit(.minutes(15)))
struct IdleTests {
  @Test(
    "an idle service hardly uses the processor, even with jobs that wait for their origin"
  )
  func idle() async throws {
    try await withPipeline(["jobs.workers": "4"]) { service, origin in
      try await service.becomesQuiet()

      origin.on("/x", .ok(Fixtures.smallPNG))
      let equal = Array(repeating: ["url": origin.url("/x"), "cache": "no-store"], count: 100)
      let different = (0..<100).map { ["url": origin.url("/x?\($0)"), "cache": "no-store"] }
      _ = try await service.outcomes(service.post(batch: equal + different))
      try await service.becomesQuiet()

      let gone = try ScriptedOrigin()
      gone.stop()
      let patient = (0..<100).map { number -> [String: Any] in
        ["url": gone.url("/\(number % 50)"), "max_attempts": 10]
      }
      _ = try await service.post(batch: patient)
      try await eventually { try await service.hasPaused() }
      try await service.becomesQuiet()
      #expect(try await service.all("queued").count > 0, "they wait still")
    }
  }

  @Test("a service stops in time while thousands of equal jobs are retried")
  func stopped() async throws {
    let gone = try ScriptedOrigin()
    gone.stop()
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let keys = ["jobs.workers": "1", "api.max_batch": "5000", "server.drain_timeout": "1s"]
    let service = try await RunningService(folder: folder, settings: environment(keys))
    let batch = Array(repeating: ["url": gone.url("/x"), "max_attempts": 10], count: 5_000)
    let ids = try await service.post(batch: batch as [[String: Any]])
    // The service responds in this state as in any other.
    _ = try await service.post(batch: Array(batch.prefix(10)) as [[String: Any]])
    let began = ContinuousClock.now
    #expect(try await service.stop() == 0)
    // The drain timeout, one second, and time for a slow machine. Earlier it never stopped.
    #expect(ContinuousClock.now - began < .seconds(60))

    let next = try await RunningService(folder: folder, settings: environment(keys))
    for id in [ids[0], ids[2_500], ids[4_999]] {
      #expect(try await next.get("/jobs/\(id)").status == 200)
    }
    #expect(try await next.jobs() == 5_010)
    #expect(try await next.stop() == 0)
  }
}

extension RunningService {
  /// Waits for two seconds in which the service uses less than 5 % of a core. Fails if there are none.
  fileprivate func becomesQuiet(_ location: SourceLocation = #_sourceLocation) async throws {
    let perSecond = sysconf(Int32(_SC_CLK_TCK))
    var used: [Int] = []
    for _ in 0..<60 {
      let before = try processorTicks()
      try await Task.sleep(for: .seconds(2))
      used.append(try processorTicks() - before)
      if used.last! * 20 < 2 * perSecond { return }
    }
    Issue.record("ticks used in two seconds each: \(used)", sourceLocation: location)
  }

  /// The user and system time so far.
  private func processorTicks() throws -> Int {
    let text = try String(contentsOfFile: "/proc/\(processIdentifier)/stat", encoding: .utf8)
    // The fields after the command's name, which may contain anything. The first is the state.
    let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
    let times = try #require(fields.count > 13 ? (Int(fields[12]), Int(fields[13])) : nil)
    return try #require(times.0) + #require(times.1)
  }

  fileprivate func hasPaused() async throws -> Bool {
    try await metrics().contains("imagefetch_paused_origins 1\n")
  }

  /// The number of jobs that the service keeps.
  fileprivate func jobs() async throws -> Int {
    try await metrics().matches(of: #/imagefetch_jobs{phase="\w+"} (\d+)/#)
      .reduce(0) { $0 + (Int($1.1) ?? 0) }
  }

  private func metrics() async throws -> String {
    String(decoding: try await get("/metrics").body, as: UTF8.self)
  }
}
