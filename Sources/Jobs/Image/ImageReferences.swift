/// Tracks which jobs and cache entries refer to images, and which images can be deleted. The bytes are in an
/// ``ImageStore``.
///
/// An image is reserved before its bytes are stored, and marked as pending deletion before its bytes are
/// removed. Therefore no instance removes an image that another one is about to store. Reservations and marks
/// belong to an instance and end with its lease. A removal may run late, after the same bytes were stored
/// again; the new copy then has another ``ImageName``.
package protocol ImageReferences: Sendable {
  /// Reserves an image before its file is published, so that it is not removed in between. First evicts
  /// images until all kept images and this one fit into `limit` bytes.
  ///
  /// Evicts images without references first, then the images that finished jobs or the cache have kept
  /// longest, approximately. Their cache entries are deleted, and their jobs change by ``Job/markImageEvicted()``.
  /// The images of unfinished jobs stay.
  ///
  /// - Parameters:
  ///   - bytes: The image's size.
  ///   - holder: The ID of the job that will be submitted with the image, or any unique ID. The reservation
  ///     ends when that job is submitted, with ``release(_:)``, with a completion, or with the instance's
  ///     lease.
  ///   - limit: The limit of all images together, in bytes.
  /// - Throws: `.leaseLost` if the instance's lease has ended.
  func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation

  /// Ends a reservation.
  func release(_ holder: JobID) async throws(StoreError)

  /// Gives up an image whose bytes are missing or corrupt. Treats it like an evicted image and marks it as
  /// pending deletion until ``confirmDeletion(_:)``.
  ///
  /// - Returns: The jobs that had the image. Nil, without a change, if the image is unknown, reserved or
  ///   needed by an unfinished job.
  func markLost(_ image: ImageDigest, for instance: Instance) async throws(StoreError) -> LostImage?

  /// Returns up to `count` images without references, and marks each as pending deletion. A marked image
  /// cannot be reserved until ``confirmDeletion(_:)`` confirms that its bytes are gone.
  func unreferencedImages(_ count: Int, for instance: Instance) async throws(StoreError)
    -> [ImageName]

  /// Returns up to `count` images that the instance has marked as pending deletion. They include images that
  /// it is removing, and images it does not know of because the answer that marked them was lost.
  func imagesPendingDeletion(_ count: Int, of instance: Instance) async throws(StoreError)
    -> [ImageName]

  /// Confirms that the bytes under these names are gone.
  func confirmDeletion(_ images: [ImageName]) async throws(StoreError)

  /// Returns the names that the store does not know, and marks them as pending deletion. They cannot be
  /// reserved until ``confirmDeletion(_:)``.
  func markOrphans(_ images: [ImageName], for instance: Instance) async throws(StoreError)
    -> [ImageName]

  /// Returns the name and size of a stored image; nil if the image is unknown.
  func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage?
}

/// An image that was given up because its bytes are missing or corrupt.
package struct LostImage: Sendable, Equatable {
  /// The name to remove; nil if another reference needs the bytes or still has them.
  package let name: ImageName?
  /// The jobs that had the image.
  package let jobs: [JobID]

  package init(_ name: ImageName?, jobs: [JobID]) {
    self.name = name
    self.jobs = jobs
  }
}

/// The result of a reservation.
package enum Reservation: Sendable, Equatable {
  /// The image is reserved under this name. The bytes of the evicted images must be removed first.
  case reserved(ImageName, evicted: [ImageName])
  /// There is not enough space even without the images of all finished jobs.
  case full
  /// Call again: the image to evict is shared by so many jobs that one call could not evict it. The images in
  /// `evicted` were evicted.
  case incomplete(evicted: [ImageName])
  /// The same image is pending deletion. Try again after ``ImageReferences/confirmDeletion(_:)``.
  case pendingDeletion
}
