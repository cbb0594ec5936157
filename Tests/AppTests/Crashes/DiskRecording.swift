import Foundation
import SQL
import TestSupport
import Testing

/// The record of a disk during two runs of a service under load. The first run was killed.
struct DiskRecording {
  let disk: RecordedDisk
  let origin: ScriptedOrigin
  let load: MixedLoad
  let changes: [DiskChange]

  /// - Parameters:
  ///   - jobs: How many jobs are acknowledged in each run.
  ///   - disturb: Changes the disk's behavior before each fifth of these jobs.
  init(of jobs: Int, disturb: (@Sendable (RecordedDisk) -> Void)? = nil) async throws {
    let disk = try await RecordedDisk()
    self.disk = disk
    origin = try ScriptedOrigin()
    let load = MixedLoad(origin) { disk.moment }
    self.load = load
    for _ in 0..<2 {
      let service = try await RunningService(
        folder: disk.folder, settings: MixedLoad.settings.merging(disk.settings) { $1 })
      await load.go(on: service) {
        let before = load.acknowledged
        for number in stride(from: 0, to: jobs, by: 5) {
          disturb?(disk)
          await poll { load.acknowledged - before >= min(number + 5, jobs) || !service.isRunning }
        }
        try? await disk.cutPower(of: service)
      }
      try #require(!service.isRunning)
    }
    changes = try disk.changes()
  }

  func end() {
    origin.stop()
    disk.remove()
  }

  /// Returns the disk as it was after this many changes.
  func model(after count: Int, without forgotten: DiskModel.Forgotten? = nil) throws -> DiskModel {
    var model = try disk.emptyDisk()
    model.forgotten = forgotten
    for change in changes.prefix(count) { model.make(change) }
    return model
  }

  /// Starts a service on a disk and returns what it has lost.
  /// - Parameter failures: Codes that jobs may have failed with, whatever their expected result.
  func losses(
    after count: Int, _ tree: DiskModel.Tree, isTidy: Bool = true, failures: Set<String> = []
  ) async throws -> [String] {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try tree.write(to: folder)
    try await load.beginAnotherLife()
    var losses = try Self.damage(in: folder)
    do {
      let service = try await RunningService(folder: folder, settings: MixedLoad.settings)
      try await load.settle(on: service)
      let then = count == 0 ? 0 : changes[count - 1].moment
      losses += try await load.losses(on: service, since: then, failures: failures)
      if isTidy, try await load.orphans(of: service) != 0 { losses.append("orphans") }
      if try await service.stop() != 0 { losses.append("it did not end well") }
    } catch let unstarted as RunningService.Unstarted {
      losses.append("it does not start: \(unstarted.log)")
    }
    return losses
  }

  /// Returns the paths that differ after the whole record is replayed. There are none if every change was
  /// recorded. SQLite's shared-memory file is not compared, because SQLite recreates it.
  func omissions() throws -> [String] {
    var chance = SystemRandomNumberGenerator()
    let made = try model(after: changes.count).remains(.everything, &chance)
    let left = try DiskModel.Tree(of: disk.folder)
    return Set(made.keys).union(left.keys).filter { path in
      made[path] != left[path] && !path.hasSuffix("-shm")
    }.sorted()
  }

  /// Returns what SQLite finds wrong with a copy of the database. The original stays as the power cut left
  /// it.
  private static func damage(in folder: String) throws -> [String] {
    let copy = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: copy) }
    for end in ["", "-wal", "-journal"] {
      let path = folder + "/data/jobs.sqlite" + end
      guard FileManager.default.fileExists(atPath: path) else { continue }
      try FileManager.default.copyItem(atPath: path, toPath: copy + "/jobs.sqlite" + end)
    }
    do {
      let rows = try SQLiteFile(copy + "/jobs.sqlite").rows("PRAGMA integrity_check")
      return rows.all.compactMap { rows.bytes($0, 0) }.map { String(decoding: $0, as: UTF8.self) }
        .filter { $0 != "ok" }
    } catch {
      return ["the database can't be opened: \(error)"]
    }
  }
}
