/// Keeps images' bytes, equal ones once: under their digest, or under each name of theirs. It passes the suite
/// ImageStoreTests.
public protocol ImageStore: Sendable {
  /// Makes a spooled image's bytes durable under a name with their digest, which ``StagedImage/finish()`` told. Equal
  /// bytes already kept are left as they are; harmed ones are replaced. Nothing is to be done with the spooled ones after
  /// this: they may have been moved.
  func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError)

  /// The image's bytes; nil when there are none under this digest, or others.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes?

  /// Whether the bytes are there, whole and unharmed.
  func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool

  /// Removes the bytes, if there are any.
  func remove(_ name: ImageName) async throws(StoreError)

  /// Whether the disk of the images is nearly full.
  func isLow() async -> Bool

  /// Whether there is room for some dozen further images.
  func hasRoom() async -> Bool

  /// Hands all images to `remove`, some hundred at a time, until the task is cancelled; those published meanwhile perhaps.
  /// - Parameter remove: removes what nobody wants, and returns how many these were.
  /// - Returns: how many were removed.
  func sweep(_ remove: @Sendable ([ImageName]) async -> Int) async throws(StoreError) -> Int

  /// Removes what an earlier run left on this machine alone, beside the images themselves.
  func tidy() async throws(StoreError)

  /// Removes what this machine has of an image that was removed elsewhere.
  func dropCopy(of digest: ImageDigest) async
}

extension ImageStore {
  /// It is not known here.
  public func isLow() async -> Bool { false }

  /// There are no copies.
  public func dropCopy(of digest: ImageDigest) async {}

  /// There is nothing beside them.
  public func tidy() async throws(StoreError) {}
}

/// A job store that keeps small images itself (``JobQueue/largestEmbedded``).
public protocol EmbeddedImages: Sendable {
  /// Images have up to so many bytes there.
  var largestEmbedded: Int { get }

  /// The bytes of such an image, if it is there, as they were kept: whoever reads them checks them.
  func embeddedImage(_ digest: ImageDigest) async throws(StoreError) -> [UInt8]?
}
