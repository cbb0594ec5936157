internal import Executors
internal import Fetch
public import Jobs
public import Logging
internal import Synchronization
internal import Waiting

/// Keeps images in a bucket, each as an object of its name, and copies of those lately wanted in a folder of this machine,
/// from which they are served.
///
/// An image is in the bucket before ``put(_:as:)`` returns. What comes back is compared with its digest on its way into
/// the folder. Equal downloads at the same time are one. Nothing is removed but what is told to be: an object that was
/// harmed may have been put again since it was read.
public final class S3ImageStore: ImageStore {
  private typealias Download = Result<StoredBytes?, StoreError>

  private let bucket: S3Bucket
  private let copies: any ImageStore
  private let spool: any ImageSpool
  /// Writes what is downloaded.
  private let disk: ThreadPool
  /// What there are copies of, as far as this run knows.
  private let held: Mutex<LRUCache<ImageDigest, Int>>
  private let downloads = Mutex<[ImageDigest: [OneShot<Download>]]>([:])
  private let keptImage: KeptImages
  private let log: Logger

  /// Knows under which name an image is kept, and how many bytes it has.
  public typealias KeptImages =
    @Sendable (ImageDigest) async throws(StoreError) -> KeptImage?

  /// - Parameters:
  ///   - copies: a folder that nobody else uses; what is in it beyond `maxCopyBytes` goes, the least recently used first.
  ///   - spool: where the copies are written first.
  ///   - keptImage: asked before each download.
  public init(
    _ bucket: S3Bucket, copies: any ImageStore, spool: any ImageSpool, maxCopyBytes: Int,
    keptImage: @escaping KeptImages, log: Logger
  ) {
    self.keptImage = keptImage
    self.bucket = bucket
    self.copies = copies
    self.spool = spool
    self.log = log
    disk = ThreadPool(name: "store-s3", threads: 2)
    held = Mutex(LRUCache(capacity: maxCopyBytes))
  }

  /// Stores the object, a large one in parts, and then keeps the spooled bytes as its copy.
  public func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError) {
    let bytes = try staged.bytes()
    do throws(S3Error) {
      _ = try await bucket.store(Self.key(of: name), bytes, digest: name.digest)
    } catch { throw StoreError(error) }
    do throws(StoreError) {
      try await copies.put(staged, as: name)
      await note(name.digest, bytes.count)
    } catch {
      log.warning("an image has no copy on this machine", metadata: ["error": "\(error)"])
    }
  }

  /// The copy, made now where there is none.
  public func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes? {
    if let copy = try await copies.open(digest) {
      await note(digest, copy.count)
      return copy
    }
    return try await download(digest).get()
  }

  /// Reads the copy; where there is none, one is made: whoever asks is about to serve the image.
  public func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool {
    if try await copies.verify(digest, bytes: bytes) { return true }
    return try await open(digest)?.count == bytes
  }

  /// Removes the object first: a copy alone would be served for ever.
  public func remove(_ name: ImageName) async throws(StoreError) {
    do throws(S3Error) { try await bucket.remove(Self.key(of: name)) } catch {
      throw StoreError(error)
    }
    held.withLock { _ = $0.remove(name.digest) }
    try await copies.remove(name)
  }

  /// Whether this machine has little room for copies: a bucket has no end.
  public func isLow() async -> Bool { await copies.isLow() }

  /// On this machine.
  public func hasRoom() async -> Bool { await copies.hasRoom() }

  /// Lists the bucket. Objects below the prefix whose keys are no names are left alone.
  public func sweep(
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

// Copies.
extension S3ImageStore {
  /// A copy was made or used: the least recently used ones go where there are too many.
  private func note(_ digest: ImageDigest, _ count: Int) async {
    let evicted = held.withLock { held in
      held.value(for: digest) == nil
        ? held.set(count, for: digest, cost: max(1, count)).map(\.key) : []
    }
    for copy in evicted { await removeCopy(of: copy) }
  }

  /// Also one that an earlier run left, of which this one does not know.
  public func dropCopy(of digest: ImageDigest) async {
    held.withLock { _ = $0.remove(digest) }
    await removeCopy(of: digest)
  }

  private func removeCopy(of digest: ImageDigest) async {
    do throws(StoreError) { try await copies.remove(ImageName(digest)) } catch {
      log.warning("an image's copy can't be removed", metadata: ["error": "\(error)"])
    }
  }

  /// Copies that an earlier run left, and nobody has opened since, go.
  public func tidy() async throws(StoreError) {
    _ = try await copies.sweep { names in
      let forgotten = names.map(\.digest).filter { digest in
        self.held.withLock { $0.peek(digest) == nil }
      }
      for digest in forgotten { await self.removeCopy(of: digest) }
      return forgotten.count
    }
  }

  /// Downloads it, once for all who want it at the same time.
  private func download(_ digest: ImageDigest) async -> Download {
    let turn = OneShot<Download>()
    let isFirst = downloads.withLock { downloads in
      let isFirst = downloads[digest] == nil
      downloads[digest, default: []].append(turn)
      return isFirst
    }
    if isFirst {
      // Whoever came first may leave; the others still want it.
      Task {
        let download = await makeCopy(of: digest)
        let waiting = downloads.withLock { $0.removeValue(forKey: digest) } ?? []
        for turn in waiting { turn.fulfil(download) }
      }
    }
    return await turn.value() ?? .failure(.unavailable(detail: "nobody waits for it any more"))
  }

  /// What is under an image's name in the bucket.
  private enum Found {
    case whole(any StagedImage)
    case missing
    /// Other bytes than the name says; nil: more of them.
    case harmed(ImageDigest?)
  }

  private func makeCopy(of digest: ImageDigest) async -> Download {
    do throws(StoreError) {
      var (image, other): (KeptImage?, ImageDigest??) = (try await keptImage(digest), nil)
      for _ in 1...3 {
        guard let kept = image else { return .success(nil) }
        switch try await download(kept) {
        case .whole(let staged): return await keep(staged, as: digest)
        case .missing:
          // It may have been let go of since then, and kept anew under another name.
          image = try await keptImage(digest)
          if image?.name == kept.name { return .success(nil) }
        case .harmed(let found):
          // What may have been harmed on its way here is asked for again.
          if other == .some(found) {
            log.error(
              "an object's bytes are not those of its name", metadata: ["image": "\(digest.hex)"])
            return .success(nil)
          }
          other = .some(found)
        }
      }
      throw .unavailable(detail: "the object store gives others each time")
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
        return .harmed(nil)
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
        guard count <= image.bytes else { return .success(.harmed(nil)) }
        let failure = await disk.run { () -> StoreError? in
          do throws(StoreError) { try staged.write(piece) } catch { return error }
          return nil
        }
        if let failure { return .failure(failure) }
      }
    } catch { throw .unreachable(error) }
    let found = staged.finish()
    return .success(found == image.name.digest ? .whole(staged) : .harmed(found))
  }

  private func keep(_ staged: any StagedImage, as digest: ImageDigest) async -> Download {
    do throws(StoreError) {
      // Read through a descriptor of their own: the copy goes at once where it is larger than all may be, or where a sweep
      // of copies comes before it is noted.
      let bytes = try await disk.run { () -> Result<StoredBytes, StoreError> in
        do throws(StoreError) { return .success(try staged.bytes()) } catch {
          return .failure(error)
        }
      }.get()
      try await copies.put(staged, as: ImageName(digest))
      await note(digest, bytes.count)
      return .success(bytes)
    } catch { return .failure(error) }
  }
}

// Names.
extension S3ImageStore {
  /// As files are named: what looks through a bucket by hand sees no folder of a million objects. A generation follows.
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
