internal import Foundation
internal import Jobs
internal import PostgreSQL
internal import Store

/// The job store that the configuration names, and what is to be closed with it.
struct JobKeeping: Sendable {
  let store: any JobStore & CacheStore & EmbeddedImages & ImageOwner
  /// Once nothing is asked of it any more.
  let close: @Sendable () async -> Void

  /// Opens it; blocks for as long as that takes.
  ///
  /// - Parameters:
  ///   - isDurable: whether jobs outlive a crash of the machine; not PostgreSQL's to be asked.
  ///   - adopting: whether images that a new database knows nothing of are to become its own.
  init(
    _ configuration: Configuration, isDurable: Bool, adopting: Bool = false
  ) throws(StartError) {
    self =
      if let url = configuration.storage.jobs {
        try Self.postgres(url, configuration, adopting: adopting)
      } else {
        try Self.sqlite(configuration, isDurable: isDurable)
      }
  }

  private init(
    _ store: any JobStore & CacheStore & EmbeddedImages & ImageOwner,
    close: @escaping @Sendable () async -> Void
  ) {
    (self.store, self.close) = (store, close)
  }

  private static func sqlite(
    _ service: Configuration, isDurable: Bool
  ) throws(StartError) -> JobKeeping {
    let store = try sqlite(service.storage.path) { path throws(StoreError) in
      var configuration = SQLiteJobStore.Configuration(path: path)
      configuration.isDurable = isDurable
      configuration.reserve = isDurable ? service.storage.reserve : 0
      configuration.longestWait = service.jobs.retryBackoff.maximum
      return try SQLiteJobStore(configuration)
    }
    return JobKeeping(store) { await store.close() }
  }

  /// Does something with the database in a folder.
  static func sqlite<Value>(
    _ path: String, _ body: (_ path: String) throws(StoreError) -> Value
  ) throws(StartError) -> Value {
    do throws(StoreError) { return try body(path + "/jobs.sqlite") } catch {
      throw .operatorMistake("storage.path: \"\(path)\" can't be used: \(error)")
    }
  }

  /// The database knows where its images are: in a bucket, which instances share, or in a folder, whose lock and name see
  /// to it that one service at a time has the database.
  private static func postgres(
    _ url: String, _ service: Configuration, adopting: Bool
  ) throws(StartError) -> JobKeeping {
    let storage = service.storage
    let home: StorageHome
    do throws(StoreError) { home = try StorageHome(storage.path) } catch {
      throw .operatorMistake("storage.path: \"\(storage.path)\" can't be used: \(error)")
    }
    var configuration = try database(url, storage)
    configuration.leaseTimeout = max(service.cluster.lease / 3, .seconds(1))
    (configuration.name, configuration.version) = (service.instanceName, App.version)
    configuration.address = service.cluster.url
    configuration.workers = service.jobs.workers
    configuration.home =
      storage.images.map { "\($0) at \(storage.s3.endpoint ?? "AWS")" } ?? home.name
    // A bucket says itself whose it is.
    configuration.isHomeEmpty = storage.images != nil || home.isEmpty || adopting
    configuration.isShared = storage.images != nil
    do throws(StoreError) {
      let store = try PostgresJobStore(configuration)
      return JobKeeping(store) {
        await store.close()
        home.release()
      }
    } catch {
      // The machine's, as a rule, or the network's: whoever watches over the service starts it again.
      throw .unusableStore("storage.jobs: \(error)")
    }
  }

  /// Where the database is.
  static func database(
    _ url: String, _ storage: Configuration.Storage
  ) throws(StartError) -> PostgresJobStore.Configuration {
    var configuration = PostgresJobStore.Configuration(url: url)
    if let path = storage.jobsPasswordFile {
      let first = try password(path)
      // It may change while the service runs; until the new file is there, it is the old one's.
      configuration.password = { (try? password(path)) ?? first }
    }
    return configuration
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
