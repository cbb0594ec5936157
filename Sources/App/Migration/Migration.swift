internal import Foundation
internal import Glibc
internal import Images
internal import Jobs
package import Logging
internal import PostgreSQL
internal import SQL
internal import SQLite

/// The `migrate` and `move` commands: they work on the configured stores without starting the service.
package enum Migration {
  /// The schema version of the job store, and the latest one that this release knows.
  package static func versions(
    _ configuration: Configuration
  ) throws(StartError) -> (found: Int, latest: Int) {
    let versions = try tables(configuration)
    return (versions.found, versions.latest)
  }

  private static func tables(_ configuration: Configuration) throws(StartError) -> TableVersions {
    let storage = configuration.storage
    guard let url = storage.jobs else {
      return try ConfiguredJobStore.sqlite(storage.path) { path throws(StoreError) in
        try SQLiteDatabase.versions(at: path)
      }
    }
    let database = try ConfiguredJobStore.database(url, storage)
    do throws(StoreError) { return try SQLJobStore.versions(database) } catch {
      throw .unusableStore("storage.jobs: \(error)")
    }
  }

  /// Migrates the job store's tables to the latest schema version.
  package static func run(_ configuration: Configuration) async throws(StartError) {
    umask(0o077)
    let storage = configuration.storage
    guard let url = storage.jobs else {
      let store = try ConfiguredJobStore.sqlite(storage.path) { path throws(StoreError) in
        try SQLJobStore(
          SQLJobStore.Configuration(SQLiteDatabase(SQLiteDatabase.Configuration(path: path))))
      }
      return await store.close()
    }
    let database = try ConfiguredJobStore.database(url, storage)
    do throws(StoreError) { try SQLJobStore.migrate(database) } catch {
      throw .unusableStore("storage.jobs: \(error)")
    }
  }

  /// Copies a folder of jobs and images into the configured stores.
  ///
  /// - Parameters:
  ///   - folder: an earlier `storage.path`. Its tables are migrated to the latest schema version, and running jobs are queued again.
  ///   - report: called with the totals after each page.
  /// - Throws: `.operatorMistake` if the folder does not exist or another service uses it.
  package static func move(
    from folder: String, to configuration: Configuration, log: Logger,
    report: @escaping @Sendable (MoveTotals) -> Void
  ) async throws(StartError) -> MoveTotals {
    umask(0o077)
    SystemLimits.apply()
    guard FileManager.default.fileExists(atPath: folder + "/jobs.sqlite") else {
      throw .operatorMistake("\(folder): there is no jobs.sqlite to move")
    }
    guard FileManager.default.fileExists(atPath: folder + "/images") else {
      throw .operatorMistake(
        "\(folder): there is no images folder to move. Images in a bucket can't be moved")
    }
    try configuration.checkImageKeys()
    let isSameFolder = place(folder) == place(configuration.storage.path)
    let jobs = try ConfiguredJobStore.target(configuration, isSameFolder: isSameFolder)
    let images = try ConfiguredImageStore(
      configuration, isDurable: true, references: jobs.store, now: Parts.now, log: log)
    if let failure = await images.check(jobs.store) { throw failure }
    let source = try FolderSource(
      folder, isSame: isSameFolder, images, configuration.storage)
    let move = StoreMove(
      from: StoreMove.Source(records: source.jobs, images: source.images),
      to: StoreMove.Target(
        records: jobs.store, images: images.store, spool: images.spool, isSame: source.isSame),
      report: report)
    let result: Result<MoveTotals, StoreMove.Failure>
    do throws(StoreMove.Failure) { result = .success(try await move.run()) } catch {
      result = .failure(error)
    }
    await source.jobs.close()
    images.close()
    await jobs.close()
    do throws(StoreMove.Failure) { return try result.get() } catch {
      switch error {
      case .refused(let reason): throw .operatorMistake("storage.jobs: \(reason)")
      case .store(let error):
        throw .unusableStore(
          "\(error). The rows and images moved so far are kept. Remove the cause and run the same command again to continue"
        )
      }
    }
  }

  private static func place(_ path: String) -> String {
    URL(filePath: path).standardizedFileURL.resolvingSymlinksInPath().path
  }
}

/// A folder of jobs and images, locked.
private struct FolderSource {
  let jobs: SQLJobStore
  let images: any ImageStore
  /// Whether source and target use the same image files.
  let isSame: Bool

  /// - Parameter kept: the target's images, also used as the source's if both are in the same folder.
  init(
    _ folder: String, isSame isSameFolder: Bool, _ kept: ConfiguredImageStore,
    _ storage: Configuration.Storage
  ) throws(StartError) {
    isSame = isSameFolder && storage.images == nil
    do throws(StoreError) {
      var database = SQLiteDatabase.Configuration(path: folder + "/jobs.sqlite")
      // The same folder is already locked for the target.
      database.locksFolder = !isSameFolder
      jobs = try SQLJobStore(SQLJobStore.Configuration(SQLiteDatabase(database)))
      if isSame {
        images = TieredImageStore(jobs: jobs, files: kept.store)
      } else {
        images = TieredImageStore(
          jobs: jobs,
          files: try FileImageStore(FileImageStore.Configuration(path: folder + "/images")))
      }
    } catch {
      throw .operatorMistake("\(folder): \(error)")
    }
  }
}

/// Counts of what a move has copied so far.
package struct MoveTotals: Sendable, Equatable {
  /// Counts of one kind of record.
  package struct Counts: Sendable, Equatable {
    /// Moved by this run.
    var moved = 0
    /// Already in the target, from an earlier run.
    var found = 0

    var all: Int { moved + found }
  }

  /// The number of jobs in the source.
  var expected = 0
  package var jobs = Counts()
  /// Cache entries, including variants.
  package var entries = Counts()
  package var batches = Counts()
  /// Idempotency keys.
  package var keys = Counts()
  /// Webhook messages.
  package var messages = Counts()
  /// Images; equal images count once.
  var images = Counts()
  /// Rows of all tables that have no valid id.
  var unreadable = 0
  /// Bytes of the images that this run moved.
  package var bytes = 0
  /// Images whose bytes are missing or corrupt.
  var missing = 0

  /// Counts a page of rows.
  /// - Parameter new: The number of rows that the target did not have.
  mutating func count(_ page: TablePage, new: Int) {
    unreadable += page.unreadable
    let kinds: [String: WritableKeyPath<MoveTotals, Counts>] = [
      "jobs": \.jobs, "batches": \.batches, "cache": \.entries, "keys": \.keys,
      "messages": \.messages,
    ]
    guard let kind = kinds[page.table.name] else { return }
    self[keyPath: kind].moved += new
    self[keyPath: kind].found += page.count - new
  }

  /// The progress as one line of text.
  package var progress: String {
    "\(jobs.all) of \(expected) jobs, \(entries.all) cache entries, \(images.moved) images "
      + "(\(size(bytes)))"
  }

  /// The totals as text, one line per kind.
  package var summary: [String] {
    var lines = [
      line("jobs", jobs), line("batches", batches), line("cache entries", entries),
      line("idempotency keys", keys),
      line("webhook messages", messages), line("images", images) + ", \(size(bytes))",
    ]
    if missing > 0 {
      lines.append(
        "images missing or corrupt: \(missing); requests for them get image_gone")
    }
    if unreadable > 0 { lines.append("rows without a valid id: \(unreadable); not moved") }
    return lines
  }

  private func line(_ name: String, _ things: Counts) -> String {
    "\(name): \(things.moved) moved" + (things.found > 0 ? ", \(things.found) already there" : "")
  }

  private func size(_ bytes: Int) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"]
    var (value, unit) = (Double(bytes), 0)
    while value >= 1_000, unit < units.count - 1 { (value, unit) = (value / 1_000, unit + 1) }
    let tenths = Int((value * 10).rounded())
    return unit == 0 ? "\(bytes) B" : "\(tenths / 10).\(tenths % 10) \(units[unit])"
  }
}
