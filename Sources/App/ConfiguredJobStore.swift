internal import Engine
internal import Foundation
internal import Images
internal import Jobs
internal import PostgreSQL
internal import SQL
internal import SQLite

/// The job store that the configuration selects, and how to close it.
struct ConfiguredJobStore: Sendable {
  let store: SQLJobStore
  /// Closes the store. Call it after the last use of the store.
  let close: @Sendable () async -> Void

  /// Opens the store; blocks until it is open.
  ///
  /// - Parameters:
  ///   - isDurable: whether jobs survive a crash of the machine. Only SQLite uses it.
  /// - Throws: `.operatorMistake` if the folder or the password file can't be used; `.unusableStore` if PostgreSQL can't.
  init(_ configuration: Configuration, isDurable: Bool) throws(StartError) {
    self =
      if let url = configuration.storage.jobs {
        try Self.postgres(url, configuration)
      } else {
        try Self.sqlite(configuration, isDurable: isDurable)
      }
  }

  /// Opens the target of a move.
  /// - Parameter isSameFolder: whether the folder and its images are those of the source.
  /// - Throws: `.operatorMistake` if no other database is configured; besides, as the initializer.
  static func target(
    _ configuration: Configuration, isSameFolder: Bool
  ) throws(StartError) -> ConfiguredJobStore {
    guard let url = configuration.storage.jobs else {
      throw .operatorMistake("storage.jobs: is not set. Set it to the database to move to")
    }
    return try postgres(url, configuration) {
      $0.isCopied = true
      if isSameFolder { $0.isHomeEmpty = true }
    }
  }

  private init(
    _ store: SQLJobStore,
    close: @escaping @Sendable () async -> Void
  ) {
    (self.store, self.close) = (store, close)
  }

  private static func sqlite(
    _ service: Configuration, isDurable: Bool
  ) throws(StartError) -> ConfiguredJobStore {
    let store = try sqlite(service.storage.path) { path throws(StoreError) in
      var database = SQLiteDatabase.Configuration(path: path)
      database.isDurable = isDurable
      database.reserve = isDurable ? service.storage.reserve : 0
      var configuration = SQLJobStore.Configuration(try SQLiteDatabase(database))
      configuration.longestWait = service.engine.retry.maximumBackoff
      return try SQLJobStore(configuration)
    }
    return ConfiguredJobStore(store) { await store.close() }
  }

  /// Calls `body` with the path of the folder's database, and translates its errors.
  static func sqlite<Value>(
    _ path: String, _ body: (_ path: String) throws(StoreError) -> Value
  ) throws(StartError) -> Value {
    do throws(StoreError) { return try body(path + "/jobs.sqlite") } catch {
      throw .operatorMistake("storage.path: \"\(path)\" can't be used: \(error)")
    }
  }

  /// Opens the PostgreSQL database, which records where its images are: in a bucket or in a folder.
  ///
  /// Several instances can share a bucket. With a folder, the folder's lock and name ensure that only one service at a
  /// time uses the database.
  private static func postgres(
    _ url: String, _ service: Configuration,
    _ change: (inout SQLJobStore.Configuration) -> Void = { _ in }
  ) throws(StartError) -> ConfiguredJobStore {
    let storage = service.storage
    let home: StorageHome
    do throws(StoreError) { home = try StorageHome(storage.path) } catch {
      throw .operatorMistake("storage.path: \"\(storage.path)\" can't be used: \(error)")
    }
    var configuration = try database(url, storage)
    configuration.leaseTimeout = max(service.engine.lease / 3, .seconds(1))
    (configuration.name, configuration.version) = (service.instanceName, App.version)
    configuration.workers = service.engine.workers
    configuration.home =
      storage.images.map { "\($0) at \(storage.s3.endpoint ?? "AWS")" } ?? home.name
    // A bucket records its owner itself, see `BucketOwner`.
    configuration.isHomeEmpty = storage.images != nil || home.isEmpty
    configuration.isShared = storage.images != nil
    change(&configuration)
    do throws(StoreError) {
      let store = try SQLJobStore(configuration)
      return ConfiguredJobStore(store) {
        await store.close()
        home.release()
      }
    } catch {
      // Usually a temporary fault of the database or the network. The service manager starts the service again.
      throw .unusableStore("storage.jobs: \(error)")
    }
  }

  /// The connection settings of the database.
  static func database(
    _ url: String, _ storage: Configuration.Storage
  ) throws(StartError) -> SQLJobStore.Configuration {
    var database = PostgresDatabase(url: url)
    if let path = storage.jobsPasswordFile {
      let first = try password(path)
      // The file may change while the service runs. If it can't be read, the first password is used.
      database.password = { (try? password(path)) ?? first }
    }
    return SQLJobStore.Configuration(database)
  }

  private static func password(_ path: String) throws(StartError) -> String {
    guard let text = try? String(contentsOfFile: path, encoding: .utf8) else {
      throw .operatorMistake("storage.jobs_password_file: \"\(path)\" can't be read")
    }
    let password = text.prefix { !$0.isNewline }
    guard !password.isEmpty else {
      throw .operatorMistake("storage.jobs_password_file: \"\(path)\" is empty")
    }
    return String(password)
  }
}
