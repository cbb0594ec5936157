internal import Executors
internal import Fetch
internal import Foundation
internal import Images
internal import Jobs
internal import Logging
internal import S3

/// The image store that the configuration selects, and the spool that belongs to it.
struct ConfiguredImageStore: Sendable {
  let store: any ImageStore
  let spool: any ImageSpool
  /// Checks that the store is usable and belongs to this job store. Returns nil if so, otherwise the error.
  let check: @Sendable (any ImageOwner) async -> StartError?
  /// Cancels open requests. Call it after the last use of the store.
  let close: @Sendable () -> Void

  /// Opens the store; blocks for some milliseconds.
  ///
  /// - Parameters:
  ///   - isDurable: whether images in files survive a crash of the machine.
  ///   - references: the job store, which records the images that exist.
  ///   - now: the clock for signing requests.
  /// - Throws: `.operatorMistake` if the folder or the endpoint can't be used; `.internalFault` if libcurl can't start.
  init(
    _ configuration: Configuration, isDurable: Bool, references: any ImageReferences,
    now: @escaping WallClock, log: Logger
  ) throws(StartError) {
    let storage = configuration.storage
    guard let bucket = storage.images else {
      // A store that is not durable starts in an empty temporary folder, so there is nothing to sweep.
      let files = try Self.files(
        storage.path + "/images", storage, isDurable: isDurable, isSwept: isDurable)
      (store, spool) = (files, files.spool)
      check = { _ in nil }
      close = {}
      return
    }
    // Local copies can be fetched again from the bucket. Files of an earlier run are not counted in any limit, so they
    // are deleted.
    let copies = try Self.files(storage.path + "/copies", storage, isDurable: false, isSwept: true)
    let sender = try Self.sender()
    let remote = S3Bucket(
      try S3Bucket.Address(bucket, storage.s3), sender: sender,
      credentials: S3CredentialSource(
        file: storage.s3.credentialsFile, environment: ProcessInfo.processInfo.environment),
      now: now, log: log)
    store = S3ImageStore(
      remote, copies: copies, spool: copies.spool, maxCopyBytes: storage.localCache,
      keptImage: { digest throws(StoreError) in try await references.keptImage(digest) }, log: log)
    spool = copies.spool
    check = { jobs in
      do throws(BucketOwner.Refusal) {
        try await BucketOwner(of: remote).claim(for: jobs)
        return nil
      } catch { return .unusableStore("storage.images: \(error)") }
    }
    close = { sender.shutdown() }
  }

  private static func files(
    _ path: String, _ storage: Configuration.Storage, isDurable: Bool, isSwept: Bool
  ) throws(StartError) -> FileImageStore {
    var folder = FileImageStore.Configuration(path: path)
    folder.maxPartialBytes = storage.partials
    folder.isDurable = isDurable
    folder.isSwept = isSwept
    do throws(StoreError) { return try FileImageStore(folder) } catch {
      throw .operatorMistake("storage.path: \"\(storage.path)\" can't be used: \(error)")
    }
  }

  /// A separate fetcher without an address policy, because the operator chose the endpoint.
  private static func sender() throws(StartError) -> CurlFetcher {
    var configuration = CurlFetcher.Configuration()
    configuration.policy = .everywhere
    configuration.userAgent = "imagefetch/\(App.version)"
    configuration.isCounted = false
    do throws(FetcherSetupError) { return try CurlFetcher(configuration) } catch {
      throw .internalFault("libcurl: \(error)")
    }
  }
}

extension S3Bucket.Address {
  /// - Parameter text: `s3://bucket/prefix`, already validated.
  fileprivate init(_ text: String, _ s3: Configuration.ObjectStore) throws(StartError) {
    let parts = text.dropFirst("s3://".count).split(separator: "/", maxSplits: 1)
    let endpoint = s3.endpoint ?? "https://s3.\(s3.region).amazonaws.com"
    guard let bucket = parts.first, let url = SourceURL(endpoint) else {
      throw .operatorMistake("storage.s3.endpoint: \"\(endpoint)\" is not a URL")
    }
    self.init(
      endpoint: url, region: s3.region, bucket: String(bucket),
      prefix: parts.count > 1 ? String(parts[1]) : "", isPathStyle: s3.isPathStyle)
  }
}
