/// Keeps images' bytes under their digest, equal bytes once.
public protocol ImageStore: Sendable {
  /// Room for an image whose digest is not known yet.
  func stage() async throws(StoreError) -> any StagedImage

  /// The image's bytes; nil when there are none under this digest, or others: these are removed.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes?

  /// Whether the bytes are there, whole and unharmed. Harmed ones are removed.
  func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool

  /// Removes the bytes, if there are any.
  func remove(_ digest: ImageDigest) async throws(StoreError)

  /// Whether there is room for some dozen further images.
  func hasRoom() async -> Bool

  /// Removes what a crash left half written: called once, before anything is staged.
  /// - Returns: how many there were.
  func removeUnfinished() async throws(StoreError) -> Int

  /// Hands all images to `remove`, some hundred at a time, until the task is cancelled; those published meanwhile perhaps.
  /// - Parameter remove: removes what nobody wants, and returns how many these were.
  /// - Returns: how many were removed.
  func sweep(_ remove: @Sendable ([ImageDigest]) async -> Int) async throws(StoreError) -> Int
}

/// A job store that keeps small images itself (``JobQueue/largestEmbedded``).
public protocol EmbeddedImages: Sendable {
  /// Images have up to so many bytes there.
  var largestEmbedded: Int { get }

  /// The bytes of such an image, if it is there, as they were kept: whoever reads them checks them.
  func embeddedImage(_ digest: ImageDigest) async throws(StoreError) -> [UInt8]?
}

/// An image being written: by one task, in order. Letting go of it unpublished leaves nothing behind.
public protocol StagedImage: AnyObject, Sendable {
  /// Adds bytes. May compute and wait for the disk: call it on a thread that may.
  func write(_ bytes: [UInt8]) throws(StoreError)

  /// The digest of all bytes written.
  func finish() -> ImageDigest

  /// All the bytes written, where they are few and still in memory.
  var content: [UInt8]? { get }

  /// Makes the bytes durable under the digest that ``finish()`` told. Equal bytes already kept are left as they are.
  func publish() async throws(StoreError)

  /// Says which response the bytes are of: from now on a crash of the service leaves those that were written, but for
  /// the last second's, to be continued by the next request of that key.
  func identify(_ key: Fingerprint, _ response: PartialResponse)

  /// Leaves the bytes to the next request of the key that ``identify(_:_:)`` told, in the place of what is kept for it.
  /// Without a key, or a byte, nothing is left. The stage can't be used after this.
  func setAside() async throws(StoreError)
}

/// A stored image's bytes, open for reading for as long as this is held.
public final class StoredBytes: Sendable {
  /// Where they are.
  public enum Place: Sendable {
    /// In an open file, from that offset on.
    case file(descriptor: Int32, offset: Int)
    /// In memory.
    case memory([UInt8])
  }
  /// Reads a part: given its offset and how many bytes. It may wait for the disk.
  public typealias Reader = @Sendable (_ offset: Int, _ count: Int) -> [UInt8]

  /// Where they are.
  public let place: Place
  /// How many there are.
  public let count: Int
  private let reader: Reader
  private let close: @Sendable () -> Void

  /// Bytes in an open file.
  ///
  /// - Parameters:
  ///   - reader: reads from the file.
  ///   - close: called once when nobody holds the bytes any more.
  public init(
    descriptor: Int32, count: Int, reader: @escaping Reader, close: @escaping @Sendable () -> Void
  ) {
    place = .file(descriptor: descriptor, offset: 0)
    self.count = count
    self.reader = reader
    self.close = close
  }

  /// Bytes in memory.
  public init(_ bytes: [UInt8]) {
    place = .memory(bytes)
    count = bytes.count
    reader = { offset, count in Array(bytes.dropFirst(offset).prefix(count)) }
    close = {}
  }

  /// Some of them; holds them all.
  /// - Parameter range: within them.
  public init(_ whole: StoredBytes, _ range: Range<Int>) {
    place =
      switch whole.place {
      case .file(let descriptor, let offset):
        .file(descriptor: descriptor, offset: offset + range.lowerBound)
      case .memory(let bytes): .memory(Array(bytes[range]))
      }
    count = range.count
    reader = { offset, count in
      whole.read(at: range.lowerBound + offset, count: min(count, range.count - offset))
    }
    close = {}
  }

  deinit { close() }

  /// Reads a part. It may wait for the disk.
  /// - Returns: fewer bytes than asked for when the file is shorter than it was, or can't be read.
  public func read(at offset: Int, count: Int) -> [UInt8] { reader(offset, count) }
}
