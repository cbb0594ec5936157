import Foundation
import TestSupport
import Testing

/// A mixed load with `kill -9` at random moments.
@Suite("A service that is killed again and again", .timeLimit(.minutes(30)))
struct MixedCrashTests {
  /// The service is killed 8 times, and 200 times with `LONG_TESTS`.
  private static let kills = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? 200 : 8

  @Test(
    "a mixed load keeps what was acknowledged, ends it once, and leaves no orphan"
  )
  func kill() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let load = MixedLoad(origin)
    for _ in 0..<Self.kills {
      let service = try await RunningService(folder: folder, settings: MixedLoad.settings)
      await load.go(on: service) {
        let enough = load.acknowledged + .random(in: 0...30)
        await poll { load.acknowledged >= enough }
        try? await Task.sleep(for: .milliseconds(.random(in: 0...50)))
        try? await service.kill()
      }
      try #require(!service.isRunning)
    }
    let service = try await RunningService(folder: folder, settings: MixedLoad.settings)
    try await load.settle(on: service)
    print("\(Self.kills) kills: \(load.summary)")
    let losses = try await load.losses(on: service)
    #expect(losses == [])
    let orphans = try await load.orphans(of: service)
    #expect(orphans == 0)
    #expect(try await service.stop() == 0)
  }
}
