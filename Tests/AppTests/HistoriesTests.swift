import Foundation
import TestSupport
import Testing

/// Runs the program Tests/Histories, which records what clients see while faults happen, and checks it.
@Suite(
  "What clients see, while faults happen", .serialized, .timeLimit(.minutes(60)),
  .disabled(if: Sanitizer.isHere, "with a sanitizer, instances lose their leases"))
struct HistoriesTests {
  private static let isLong = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"

  @Test(
    "an order of events explains every answer",
    arguments: zip(["sqlite", "postgres"], ["4", "7"]))
  func isExplained(store: String, seconds: String) async throws {
    let run = try await Self.python(
      "histories.py", "--service", RunningService.executable, "--store", store,
      "--operations", "100000", "--seconds", Self.isLong ? "1500" : seconds)
    #expect(run.status == 0, "\(run.text)")
    #expect(run.text.contains(": 0 violations"), "\(run.text)")
    print("histories: \(run.text)")
  }

  @Test("each rule finds what breaks it, and allows what the contract allows")
  func rules() async throws {
    let run = try await Self.python("selftest.py")
    #expect(run.status == 0, "\(run.text)")
  }

  private static func python(_ program: String, _ arguments: String...) async throws
    -> ChildProcess.Ended
  {
    try await ChildProcess.run(
      ["/usr/bin/python3", Readme.root + "Tests/Histories/" + program] + arguments)
  }
}
