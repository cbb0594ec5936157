/// Stores images. Equal bytes are stored once, under their digest or under each of their names. Every
/// implementation passes the tests in ImageStoreTests.
package protocol ImageStore: Sendable {
  /// Stores a spooled image durably. The digest in the name is the one that ``StagedImage/finish()``
  /// returned. Equal bytes that are already stored stay as they are; corrupt ones are replaced. Do not use
  /// `staged` afterwards: its file may have been moved.
  func put(_ staged: any StagedImage, as name: ImageName) async throws(StoreError)

  /// Returns the image's bytes; nil if there are none under this digest or if they are corrupt.
  func open(_ digest: ImageDigest) async throws(StoreError) -> StoredBytes?

  /// Whether the bytes are stored, complete and not corrupt.
  func verify(_ digest: ImageDigest, bytes: Int) async throws(StoreError) -> Bool

  /// Deletes the bytes, if there are any.
  func remove(_ name: ImageName) async throws(StoreError)

  /// Whether the disk of the image store is almost full.
  func isLow() async -> Bool

  /// Whether there is space for some dozen more images.
  func hasRoom() async -> Bool

  /// Passes all images to `remove`, some hundred at a time, until the task is cancelled. Images that are
  /// stored meanwhile may be missed.
  /// - Parameter remove: Deletes the images without references and returns their number.
  /// - Returns: The number of deleted images.
  func sweep(_ remove: @Sendable ([ImageName]) async -> Int) async throws(StoreError) -> Int

  /// Deletes files that an earlier run left on this machine and that are not images.
  func deleteTemporaryFiles() async throws(StoreError)

  /// Deletes this machine's copy of an image that another instance removed from the store.
  func deleteCopy(of digest: ImageDigest) async
}

extension ImageStore {
  /// Unknown for this store.
  package func isLow() async -> Bool { false }

  /// This store has no copies.
  package func deleteCopy(of digest: ImageDigest) async {}

  /// This store has no other files.
  package func deleteTemporaryFiles() async throws(StoreError) {}
}

/// A job store that stores small images itself (``JobQueue/largestEmbedded``).
package protocol EmbeddedImages: Sendable {
  /// The largest image that the job store stores, in bytes.
  var largestEmbedded: Int { get }

  /// Returns the bytes of such an image, if stored. The caller has to verify them.
  func embeddedImage(_ digest: ImageDigest) async throws(StoreError) -> [UInt8]?
}
