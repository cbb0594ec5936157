import Foundation
import TestSupport
import Testing

/// Each test runs while jobs are submitted.
@Suite("Instances that start and stop", .timeLimit(.minutes(30)))
struct ClusterCrowdTests {
  /// Whether tests repeat their steps many more times.
  private static var isLong: Bool {
    ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"
  }

  @Test("after kill -9 other instances take over in time, and nothing is lost")
  func killed() async throws {
    let lease = Duration.seconds(2)
    let keys = Crowd.keys.merging(["cluster.lease": "2s"]) { $1 }
    let kills = Self.isLong ? 50 : 2
    try await Cluster.open(3, keys) { cluster, origin in
      let crowd = Crowd(cluster, origin)
      var times: [Duration] = []
      let jobs = try await crowd.submit {
        for _ in 0..<kills {
          try await crowd.submitted(.random(in: 5...20))
          let victim = Int.random(in: 0..<3)
          let number = cluster.number(of: victim)
          try await cluster[victim].kill()
          let moment = ContinuousClock.now
          try await eventually {
            let held = try cluster.run("SELECT count(*) FROM queue WHERE instance = \(number)")
            return held.filter(\.isNumber) == "0"
          }
          times.append(ContinuousClock.now - moment)
          try await cluster.replace(victim)
        }
      }
      let longest = times.max() ?? .zero
      print("\(kills) kills, \(jobs.count) jobs: all taken over within \(longest)")
      // An instance searches for lost instances once per second. The rest is for a busy machine.
      #expect(longest < lease + .seconds(1) + .seconds(15), "\(times)")
      try await crowd.expectNothingLost(jobs)
    }
  }

  @Test("a rolling upgrade loses nothing, and no job waits for a lease")
  func replaced() async throws {
    let keys = Crowd.keys.merging(["cluster.lease": "60s"]) { $1 }
    try await Cluster.open(3, keys) { cluster, origin in
      let crowd = Crowd(cluster, origin)
      let jobs = try await crowd.submit {
        for index in 0..<(Self.isLong ? 30 : 3) {
          try await crowd.submitted(10)
          #expect(try await cluster[index % 3].stop() == 0)
          try await cluster.replace(index % 3)
        }
      }
      try await crowd.expectNothingLost(jobs)
    }
  }
}
