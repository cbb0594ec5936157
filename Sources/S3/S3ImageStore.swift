internal import Executors
internal import Fetch
package import Jobs
package import Logging
internal import Synchronization
internal import Waiting

/// Stores each image as an object in a bucket. Recently used images are copied to a local folder and
/// served from there.
///
/// ``put(_:as:)`` returns after the image is stored in the bucket. A downloaded image is compared
/// with its digest before it is copied. Concurrent downloads of one image are shared. Only
/// ``remove(_:)`` deletes objects: an object that was corrupt may have been stored again since it
/// was read.
package final class S3ImageStore: ImageStore {
  private typealias Download = Result<StoredBytes?, StoreError>

  private let bucket: S3Bucket
  private let copies: any ImageStore
  private let spool: any ImageSpool
  /// Writes downloads to the disk.
  private let disk: ThreadPool
  /// The copies known to this process, with their sizes in bytes.
  private let copySizes: Mutex<LRUCache<ImageDigest, Int>>
  private let downloads = Mutex<[ImageDigest: [OneShot<Download>]]>([:])
  private let keptImage: KeptImages
  private let log: Logger

  /// Returns the name of a stored image and its size in bytes.
  package typealias KeptImages =
    @Sendable (ImageDigest) async throws(StoreError) -> KeptImage?

  /// - Parameters:
  ///   - copies: a folder that no other process uses. Beyond `maxCopyBytes`, the least recently
  ///     used copies are removed.
  ///   - spool: where copies are written first.
  ///   - keptImage: called before each download.
  package init(
    _ bucket: S3Bucket, copies: any ImageStore, spool: any ImageSpool, maxCopyBytes: Int,
    keptImage: @escaping KeptImages, log: Logger
  ) {
    self.keptImage = keptImage
    self.bucket = bucket
    self.copies = copies
    self.spool = spool
    self.log = log
    disk = ThreadPool(name: "store-s3", threads: 2)
    copySizes = Mutex(LRUCache(capacity: maxCopyBytes))
  }

  /// Stores the object, in parts if it is large, and keeps the spooled bytes as its local copy.
  package func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    let bytes = try staged.bytes()
    do throws(S3Error) {
      _ = try await bucket.store(Self.key(of: name), bytes, digest: name.digest)
    } catch { throw StoreError(error) }
    do throws(StoreError) {
      try await copies.put(staged, as: name)
      await recordCopy(name.digest, bytes.count)
    } catch {
      log.warning("failed to store local copy of image", metadata: ["error": "\(error)"])
    }
  }

  /// Opens the local copy; downloads the image if there is none.
  package func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let copy = try await copies.open(digest) {
      await recordCopy(digest, copy.count)
      return copy
    }
    return try await download(digest).get()
  }

  /// Verifies the local copy; downloads the image if there is none, because it is about to be
  /// served.
  package func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    if try await copies.verify(digest, bytes: bytes) { return true }
    return try await open(digest)?.count == bytes
  }

  /// Deletes the object first, because a remaining copy alone would be served indefinitely.
  package func remove(_ name: ImageName) async throws(StoreError) {
    do throws(S3Error) { try await bucket.remove(Self.key(of: name)) } catch {
      throw StoreError(error)
    }
    copySizes.withLock { _ = $0.remove(name.digest) }
    try await copies.remove(name)
  }

  /// Whether little space for copies is left on this machine. The bucket has no limit.
  package func isLow() async -> Bool { await copies.isLow() }

  /// Whether this machine has space for copies.
  package func hasRoom() async -> Bool { await copies.hasRoom() }

  /// Lists the bucket. Objects whose keys are not image names are ignored.
  package func sweep(
    _ remove: @Sendable ([ImageName]) async -> Int
  ) async throws(StoreError) -> Int {
    var removed = 0
    var next: String?
    repeat {
      let page: (keys: [String], next: String?)
      do throws(S3Error) { page = try await bucket.list(after: next) } catch {
        throw StoreError(error)
      }
      let found = page.keys.compactMap { Self.name(of: $0) }
      for start in stride(from: 0, to: found.count, by: 256) where !Task.isCancelled {
        removed += await remove(Array(found[start..<min(found.count, start + 256)]))
      }
      next = page.next
    } while next != nil && !Task.isCancelled
    return removed
  }
}

// Local copies.
extension S3ImageStore {
  /// Records that a copy was made or used, and removes the least recently used ones beyond the
  /// limit.
  private func recordCopy(_ digest: ImageDigest, _ count: Int) async {
    let evicted = copySizes.withLock { held in
      held.value(for: digest) == nil
        ? held.set(count, for: digest, cost: max(1, count)).map(\.key) : []
    }
    for copy in evicted { await removeCopy(of: copy) }
  }

  /// Removes a copy, including one that an earlier run left.
  package func deleteCopy(of digest: ImageDigest) async {
    copySizes.withLock { _ = $0.remove(digest) }
    await removeCopy(of: digest)
  }

  private func removeCopy(of digest: ImageDigest) async {
    do throws(StoreError) { try await copies.remove(ImageName(digest)) } catch {
      log.warning("failed to remove local copy of image", metadata: ["error": "\(error)"])
    }
  }

  /// Removes copies that an earlier run left and that were not opened since.
  package func deleteTemporaryFiles() async throws(StoreError) {
    _ = try await copies.sweep { names in
      let forgotten = names.map(\.digest).filter { digest in
        self.copySizes.withLock { $0.peek(digest) == nil }
      }
      for digest in forgotten { await self.removeCopy(of: digest) }
      return forgotten.count
    }
  }

  /// Downloads an image, once for all concurrent callers.
  private func download(_ digest: ImageDigest) async -> Download {
    let turn = OneShot<Download>()
    let isFirst = downloads.withLock { downloads in
      let isFirst = downloads[digest] == nil
      downloads[digest, default: []].append(turn)
      return isFirst
    }
    if isFirst {
      // A separate task, because the first caller may be cancelled while others wait.
      Task {
        let download = await makeCopy(of: digest)
        let waiting = downloads.withLock { $0.removeValue(forKey: digest) } ?? []
        for turn in waiting { turn.fulfil(download) }
      }
    }
    return await turn.value() ?? .failure(.unavailable(detail: "the request was cancelled"))
  }

  /// The result of a download.
  private enum Found {
    case intact(any StagedImage)
    case missing
    /// The bytes have another digest; `nil` if they are more than expected.
    case corrupt(ImageDigest?)
  }

  private func makeCopy(of digest: ImageDigest) async -> Download {
    do throws(StoreError) {
      var (image, other): (KeptImage?, ImageDigest??) = (try await keptImage(digest), nil)
      for _ in 1...3 {
        guard let kept = image else { return .success(nil) }
        switch try await download(kept) {
        case .intact(let staged): return await storeCopy(staged, as: digest)
        case .missing:
          // The image may have been deleted and stored again under another name.
          image = try await keptImage(digest)
          if image?.name == kept.name { return .success(nil) }
        case .corrupt(let found):
          // Download again: the bytes may have been corrupted in transit.
          if other == .some(found) {
            log.error(
              "object in bucket has wrong content", metadata: ["image": "\(digest.hex)"])
            return .success(nil)
          }
          other = .some(found)
        }
      }
      throw .unavailable(detail: "the object store returns different bytes each time")
    } catch { return .failure(error) }
  }

  private func download(_ image: KeptImage) async throws(StoreError) -> Found {
    var attempt = 1
    while true {
      let found: Result<Found, StoreError>
      do throws(S3Error) {
        let object = try await bucket.get(Self.key(of: image.name), atMost: image.bytes)
        guard let object else { return .missing }
        found = try await spooled(object, of: image)
      } catch .unreachable(.tooLarge) {
        return .corrupt(nil)
      } catch {
        guard attempt < 3, error.isRetryable else { throw StoreError(error) }
        attempt += 1
        continue
      }
      return try found.get()
    }
  }

  private func spooled(
    _ bytes: any ImageBytes, of image: KeptImage
  ) async throws(S3Error) -> Result<Found, StoreError> {
    let staged: any StagedImage
    do throws(StoreError) { staged = try await spool.stage() } catch { return .failure(error) }
    var count = 0
    do throws(FetchError) {
      while let piece = try await bytes.next() {
        count += piece.count
        guard count <= image.bytes else { return .success(.corrupt(nil)) }
        let failure = await disk.run { () -> StoreError? in
          do throws(StoreError) { try staged.write(piece) } catch { return error }
          return nil
        }
        if let failure { return .failure(failure) }
      }
    } catch { throw .unreachable(error) }
    let found = staged.finish()
    return .success(found == image.name.digest ? .intact(staged) : .corrupt(found))
  }

  private func storeCopy(_ staged: any StagedImage, as digest: ImageDigest) async -> Download {
    do throws(StoreError) {
      // Open the file before it becomes a copy: a copy can be removed at once if it exceeds the
      // limit, or by a sweep before it is recorded.
      let bytes = try await disk.run { () -> Result<StoredBytes, StoreError> in
        do throws(StoreError) { return .success(try staged.bytes()) } catch {
          return .failure(error)
        }
      }.get()
      try await copies.put(staged, as: ImageName(digest))
      await recordCopy(digest, bytes.count)
      return .success(bytes)
    } catch { return .failure(error) }
  }
}

// Names of objects.
extension S3ImageStore {
  /// The key of an image, in the format of the file store's paths: two hex digits, a slash, and the
  /// rest of the digest. Tools that browse the bucket then show small folders. A generation other
  /// than 0 follows after a hyphen.
  package static func key(of name: ImageName) -> String {
    let hex = name.digest.hex
    let generation = name.generation == 0 ? "" : "-" + String(name.generation, radix: 16)
    return "\(hex.prefix(2))/\(hex.dropFirst(2))\(generation)"
  }

  static func name(of key: String) -> ImageName? {
    let parts = key.split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 2 else { return nil }
    let rest = parts[1].split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
    let generation = rest.count == 1 ? 0 : Int64(rest[1], radix: 16)
    guard let generation, let digest = ImageDigest(hex: parts[0] + rest[0]) else { return nil }
    let name = ImageName(digest, generation: generation)
    return Self.key(of: name) == key ? name : nil
  }
}

extension StoreError {
  fileprivate init(_ error: S3Error) {
    self = error.isFull ? .full : .unavailable(detail: "\(error)")
  }
}
