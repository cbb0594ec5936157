import Foundation
import Synchronization
import TestSupport
import Testing

/// Limits the cost of a job apart from its bytes, so that an increase is noticed.
@Suite("The cost of a job", .timeLimit(.minutes(15)))
struct JobPathTests {
  /// The limits for one job from `POST` to `success`: cold cache, known host, a small image, an idle service.
  /// If an improvement lowers a count, lower its limit.
  ///
  /// The synced commits are those of submitting and completing the job; the unsynced one is the claim.
  ///
  /// The code determines which threads receive work, so the least count of many jobs is exact on any machine.
  /// How often work returns to a thread also depends on timing: a task that is resumed before it suspends
  /// changes no thread, and timers fire at any time. For these counts, including `hops`, the limit is what a
  /// job takes without favorable timing.
  static let least = [
    "hops": 14, "to Swift's shared threads": 5, "to store-read": 1, "to store-write": 3,
    "to store-images": 0, "to decode": 3, "to fetch-loop": 1, "to libmicrohttpd": 1,
    "synced commits": 2, "unsynced commits": 1, "file syncs": 0, "SQL statements": 28,
    "store calls": 7,
  ]
  /// The limits for at least half of the jobs. They apply to counts that favorable timing lowers and hardly
  /// anything raises: the start of a load, and its return from the origin and the store.
  static let usual = ["to decode": 3]
  static let jobs = 40
  /// The first jobs, which meet an unknown host and unprepared statements.
  static let firstJobs = 4

  @Test("a job causes no more thread changes, commits, syncs and statements than the limits")
  func path() async throws {
    // In a separate process, because the counts are those of the whole process.
    let run = try await #require(
      processExitsWith: .success, observing: [\.standardOutputContent, \.standardErrorContent]
    ) {
      try await JobPathTests.measure()
    }
    let told = String(decoding: run.standardOutputContent, as: UTF8.self)
    print(told)
    var (least, usual): ([String: Int], [String: Int]) = ([:], [:])
    for line in told.matches(of: #/(?m)^counted (\d+) \(usually (\d+)\) (.+)$/#) {
      least[String(line.3)] = Int(line.1)
      usual[String(line.3)] = Int(line.2)
    }
    #expect(Set(least.keys) == Set(Self.least.keys))
    for (counts, bounds) in [(least, Self.least), (usual, Self.usual)] {
      for (name, bound) in bounds {
        let count = try #require(counts[name], "\(told)")
        #expect(count <= bound, "\(name)")
      }
    }
  }

  /// Prints the least of each count over some jobs, because other work only adds to a count. Also prints the
  /// counts that half of the jobs stay within.
  static func measure() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    for number in 0..<jobs { origin.on("/\(number)", .ok(image("\(number)"))) }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try CountedService(folder: folder)
    let counts = Mutex<[PathCounts]>([])
    try await service.run { port in
      guard let client = PlainClient(port: port) else { return }
      _ = service.settled()
      for number in 0..<jobs {
        guard let count = service.count(client, job: origin.url("/\(number)")) else { return }
        if number >= firstJobs { counts.withLock { $0.append(count) } }
      }
    }
    let all = counts.withLock { $0 }
    guard all.count == jobs - firstJobs else { return print("only \(all.count) jobs were counted") }
    for index in all[0].figures.indices {
      let counts = all.map { $0.figures[index].count }.sorted()
      let (least, usual) = (counts[0], counts[counts.count / 2])
      print("counted \(least) (usually \(usual)) \(all[0].figures[index].name)")
    }
    let calls = all.min { $0.hops < $1.hops }?.calls ?? [:]
    for (name, count) in calls.sorted(by: { $0.key < $1.key }) { print("call \(count) \(name)") }
  }
}
