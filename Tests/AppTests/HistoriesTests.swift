import Foundation
import Jobs
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
      "--operations", Self.isLong ? "100000" : "4000", "--seconds", Self.isLong ? "1500" : seconds)
    #expect(run.status == 0, "\(run.text)")
    #expect(run.text.contains(": 0 violations"), "\(run.text)")
    print("histories: \(run.text)")
  }

  @Test("each rule finds what breaks it, and allows what the contract allows")
  func rules() async throws {
    let run = try await Self.python("selftest.py")
    #expect(run.status == 0, "\(run.text)")
  }

  /// A planted fault, the store that has it, the faults that reveal it, and the operations within which it is found.
  struct Plant: CustomTestStringConvertible {
    let (fault, store, faults, operations): (PlantedFault, String, String, String)
    var testDescription: String { fault.rawValue }

    init(_ fault: PlantedFault, _ store: String, _ faults: String, _ operations: String) {
      (self.fault, self.store, self.faults, self.operations) = (fault, store, faults, operations)
    }

    static let all = [
      Plant(.reusedVersion, "sqlite", "none", "1000"),
      Plant(.earlyAnswer, "postgres", "none", "4000"),
      Plant(.droppedEvents, "postgres", "none", "6000"),
      Plant(.lostRetry, "postgres", "database,cut", "8000"),
      Plant(.skippedFencing, "postgres", "none", "8000"),
    ]
  }

  @Test("a planted fault is found", arguments: isLong ? Plant.all : [Plant.all[0]])
  func isFound(plant: Plant) async throws {
    let run = try await Self.python(
      "histories.py", "--service", BuiltProgram.path("imagefetch"), "--store", plant.store,
      "--faults", plant.faults, "--operations", plant.operations, "--seconds", "300",
      environment: ["PLANTED_FAULT": plant.fault.rawValue])
    #expect(run.status == 1 && run.text.contains("VIOLATED"), "\(run.text)")
  }

  private static func python(
    _ program: String, _ arguments: String..., environment: [String: String] = [:]
  ) async throws -> ChildProcess.Ended {
    try await ChildProcess.run(
      ["/usr/bin/python3", Readme.root + "Tests/Histories/" + program] + arguments,
      environment: ProcessInfo.processInfo.environment.merging(environment) { $1 })
  }
}
