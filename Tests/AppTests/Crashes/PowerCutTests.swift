import Foundation
import TestSupport
import Testing

/// Simulates power cuts at any moment. From one record of changes, many disks are created as they may be
/// found after the cut. A service must continue from each of them.
@Suite("A service whose power is cut", .timeLimit(.minutes(60)))
struct PowerCutTests {
  /// There are 8 cuts, and 200 with `LONG_TESTS`.
  private static let isLong = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"

  @Test(
    "a power cut at any moment of a mixed load loses nothing that was promised"
  )
  func cuts() async throws {
    let recordings = Self.isLong ? 5 : 1
    for _ in 0..<recordings {
      let recording = try await DiskRecording(of: Self.isLong ? 500 : 40)
      defer { recording.end() }
      let count = recording.changes.count
      #expect(try recording.omissions() == [])
      var chance = SystemRandomNumberGenerator()
      for number in 0..<(Self.isLong ? 40 : 8) {
        // One cut during the first start, one at the end.
        let moment =
          switch number {
          case 0: Int.random(in: 0...min(count, 400))
          case 1: count
          default: Int.random(in: 0...count)
          }
        let survival = [DiskModel.Survival.scattered, .ordered, .nothing][number % 3]
        let tree = try recording.model(after: moment).remains(survival, &chance)
        let losses = try await recording.losses(after: moment, tree)
        #expect(losses == [], "\(survival) of \(moment) of \(count)")
      }
      print("power cut anywhere among \(count) changes: \(recording.load.summary)")
    }
  }

  @Test("the test detects a loss if any kind of sync is omitted")
  func proof() async throws {
    let recording = try await DiskRecording(of: 40)
    defer { recording.end() }
    let count = recording.changes.count
    var chance = SystemRandomNumberGenerator()
    for forgotten in [
      DiskModel.Forgotten.syncsOfLog, .syncsOfImages, .syncsOfFolders, .syncsOfFoldersAbove,
    ] {
      let model = try recording.model(after: count, without: forgotten)
      let tree = model.remains(.nothing, &chance)
      let losses = try await recording.losses(after: count, tree, isTidy: false)
      #expect(losses != [], "\(forgotten)")
    }
  }

  @Test("nothing is considered durable after a failed sync")
  func failedSyncs() async throws {
    let recording = try await DiskRecording(of: Self.isLong ? 500 : 40) { disk in
      disk[.failingSyncs] = 1
    }
    defer { recording.end() }
    let count = recording.changes.count
    let failed = recording.changes.count { $0.kind == .syncFailed }
    #expect(failed >= 4)
    var chance = SystemRandomNumberGenerator()
    for number in 0..<(Self.isLong ? 40 : 3) {
      let moment = number == 0 ? count : Int.random(in: 0...count)
      let tree = try recording.model(after: moment).remains(.nothing, &chance)
      // A job whose image could not be synced fails.
      let losses = try await recording.losses(after: moment, tree, failures: ["internal"])
      #expect(losses == [], "\(moment) of \(count), \(failed) failed syncs")
    }
    // Without rewriting the log, a loss is detected, unless the log's contents had reached the database by
    // then. Most jobs are acknowledged between a rewrite of the log and the next failed sync.
    let failures = recording.changes.indices.filter { recording.changes[$0].kind == .syncFailed }
    var isSeen = false
    for moment in ([count] + failures.reversed()).prefix(12) where !isSeen {
      let model = try recording.model(after: moment, without: .rewritesOfLog)
      let losses = try await recording.losses(
        after: moment, model.remains(.nothing, &chance), isTidy: false, failures: ["internal"])
      isSeen = losses != []
    }
    #expect(isSeen, "\(failed) failed syncs")
  }
}
