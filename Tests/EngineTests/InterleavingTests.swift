import Foundation
import TestSupport
import Testing

/// Runs the program Tests/Interleavings, which contains the real engine.
@Suite(
  "The engine in an order that a seed decides", .serialized, .timeLimit(.minutes(60)),
  .disabled(if: Sanitizer.isHere, "a sanitizer replaces the same functions"))
struct InterleavingTests {
  /// The number of orders to try.
  private static let orders =
    ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? 5_000 : 300

  @Test("each job ends exactly once, in any order of events")
  func ends() async throws {
    let run = try await Interleavings(first: 1, Self.orders)
    #expect(run.code == 0, "SEED=… .build/debug/Interleavings repeats one:\n\(run.output)")
    let counts = try #require(run.counts, "\(run.output)")
    #expect(counts.seeds == Self.orders && counts.failed == 0)
    // Each run has active clients, and half of the runs interrupt jobs between suspension points.
    #expect(counts.jobs > 10 * Self.orders && counts.decisions > 500 * Self.orders)
    #expect(counts.interruptions > 50 * Self.orders)
    print("interleavings: \(run.output)")
  }

  @Test("one seed always gives the same order")
  func repeats() async throws {
    let run = try await Interleavings(first: 7, 6)
    #expect(try await Interleavings(first: 7, 6).output == run.output)
    #expect(try await Interleavings(first: 8, 6).counts?.digest != run.counts?.digest)
    // Also if it runs alone.
    var decisions = 0
    for seed in 7..<13 {
      decisions += try #require(try await Interleavings(seed: "\(seed)").counts).decisions
    }
    #expect(decisions == run.counts?.decisions)
  }

  @Test(
    "a planted lost update between a read and a write is found",
    arguments: ["lost-update"])
  func planted(race: String) async throws {
    let run = try await Interleavings(first: 1, 40, plant: race)
    #expect(run.code == 1, "\(run.output)")
    let first = try #require(run.output.firstMatch(of: #/SEED=(\d+): .+/#))
    let again = try await Interleavings(seed: String(first.1), plant: race)
    #expect(again.code == 1 && again.output.contains(first.0), "the seed repeats it")
  }
}

/// A run of the program that was built together with these tests.
private struct Interleavings {
  struct Counts {
    let seeds, failed, decisions, interruptions, jobs: Int
    let digest: String
  }

  let code: Int32
  let output: String

  init(seed: String? = nil, first: Int = 1, _ count: Int = 1, plant: String? = nil) async throws {
    var environment = ProcessInfo.processInfo.environment
    environment["SEED"] = seed
    let ended = try await ChildProcess.run(
      [BuiltProgram.path("Interleavings"), "\(first)", "\(count)"] + (plant.map { [$0] } ?? []),
      environment: environment)
    (code, output) = (ended.status, ended.text)
  }

  var counts: Counts? {
    let line =
      #/seeds (\d+) failed (\d+) decisions (\d+) interruptions (\d+) jobs (\d+) digest (\d+)/#
    guard let match = output.firstMatch(of: line)?.output else { return nil }
    return Counts(
      seeds: Int(match.1)!, failed: Int(match.2)!, decisions: Int(match.3)!,
      interruptions: Int(match.4)!, jobs: Int(match.5)!, digest: String(match.6))
  }

}
