import Foundation
import Synchronization
import TestSupport
import Testing

/// How much a job costs beside its bytes: pinned, so that nobody makes it more without noticing.
@Suite("A job's path", .timeLimit(.minutes(3)))
struct JobPathTests {
  /// The most that one job may take from `POST` to `success`: cold cache, known host, a small image, nothing else to
  /// do. Whoever makes it less lowers these.
  ///
  /// The synced commits are those of submitting and settling. Those without a sync are the claim, and claims that found
  /// nothing.
  static let bounds = [
    "hops": 26, "to Swift's shared threads": 9, "to store-read": 2, "to store-write": 5,
    "to store-images": 1, "to decode": 3, "to fetch-loop": 1, "to libmicrohttpd": 1,
    "synced commits": 2, "unsynced commits": 3, "file syncs": 0, "SQL statements": 51,
    "store calls": 10,
  ]
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
    var counted: [String: Int] = [:]
    for line in told.matches(of: #/(?m)^counted (\d+) (.+)$/#) {
      counted[String(line.2)] = Int(line.1)
    }
    #expect(Set(counted.keys) == Set(Self.bounds.keys))
    for (name, bound) in Self.bounds {
      let count = try #require(counted[name], "\(told)")
      #expect(count <= bound, "\(name)")
    }
  }

  /// Prints what is least of each count over some jobs: what else happens meanwhile only adds to one of them.
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
      let least = all.map { $0.figures[index].count }.min() ?? 0
      print("counted \(least) \(all[0].figures[index].name)")
    }
    let calls = all.min { $0.hops < $1.hops }?.calls ?? [:]
    for (name, count) in calls.sorted(by: { $0.key < $1.key }) { print("call \(count) \(name)") }
  }
}
