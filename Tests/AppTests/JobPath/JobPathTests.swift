import Foundation
import Synchronization
import TestSupport
import Testing

/// How much a job costs beside its bytes: pinned, so that nobody makes it more without noticing.
@Suite("A job's path", .timeLimit(.minutes(5)))
struct JobPathTests {
  /// The most that one job may take from `POST` to `success`: cold cache, known host, a small image, nothing else to
  /// do. Whoever makes it less lowers these.
  ///
  /// The synced commits are those of submitting and completing, the one without a sync is the claim's.
  ///
  /// What work is handed to is determined by the code: the least of many jobs is exact on any machine. How often work
  /// comes back to a thread depends on luck as well: a task that is resumed before it has gone to sleep changes no
  /// thread, and timers fire meanwhile. Of these, `hops` among them, the bound is what a job takes without luck.
  static let least = [
    "hops": 14, "to Swift's shared threads": 5, "to store-read": 1, "to store-write": 3,
    "to store-images": 0, "to decode": 3, "to fetch-loop": 1, "to libmicrohttpd": 1,
    "synced commits": 2, "unsynced commits": 1, "file syncs": 0, "SQL statements": 29,
    "store calls": 7,
  ]
  /// What at least half of the jobs may take, where luck is what lowers a count and hardly anything raises it: the
  /// load's begin, and its return from the origin and from the store.
  static let usual = ["to decode": 3]
  static let jobs = 40
  /// These meet a host that nobody knows, and statements that aren't prepared.
  static let firstJobs = 4

  @Test("is no longer than it was: threads, commits, syncs, statements")
  func path() async throws {
    // In a process of its own: what is counted is the whole process's.
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

  /// Prints what is least of each count over some jobs, as what else happens meanwhile only adds to one of them, and
  /// what half of them are within.
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
