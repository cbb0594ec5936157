/// What refers to images, and which of them have to go. Their bytes are an ``ImageStore``'s.
///
/// An image is referred to before its bytes are there, and marked as leaving before they go: so nobody removes what
/// another one is about to keep. Reservations and marks are an instance's, and end with its lease. The bytes' removal may
/// come later than that: where others may have kept the same bytes again by then, those have another ``ImageName``.
public protocol ImageReferences: Sendable {
  /// Registers that an image is about to be kept, before its file is published, so that nobody removes it in between.
  /// Makes room first: the images that nothing needs (``Job/loseImage()``), and with them the cache's entries, until all
  /// kept ones and this fit into `limit`. Those go first that nothing refers to any more, then those that a finished job
  /// or the cache has had for the longest, about.
  ///
  /// - Parameter holder: the job about to be submitted with the image, or any name that nobody else uses. The
  ///   reservation ends when that job is submitted, when it is released, with a completion, or with the instance's lease.
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation

  /// Ends a reservation.
  func release(_ holder: JobID) async throws(StoreError)

  /// Lets an image go whose bytes are gone or harmed, as one that gives way does, and marks it as leaving until
  /// ``forget(_:)``.
  ///
  /// - Returns: the jobs that had it; nil, and nothing is done, where no such image is kept, or where a reservation or an
  ///   unfinished job refers to it.
  func lose(_ image: ImageDigest, for instance: Instance) async throws(StoreError) -> LostImage?

  /// Up to `count` images that nothing refers to any more. Each is marked as leaving: it can't be reserved until
  /// ``forget(_:)`` says that its bytes are gone.
  func abandonedImages(_ count: Int, for instance: Instance) async throws(StoreError)
    -> [ImageName]

  /// Up to `count` images that are marked for the instance: with those that it is removing, and may have removed by
  /// now, those of which it never heard, as the answer that said so was lost.
  func leavingImages(_ count: Int, of instance: Instance) async throws(StoreError) -> [ImageName]

  /// Says that the bytes under these names are gone.
  func forget(_ images: [ImageName]) async throws(StoreError)

  /// Those among the names of which nothing is known; none can be reserved until ``forget(_:)`` either.
  func markOrphans(_ images: [ImageName], for instance: Instance) async throws(StoreError)
    -> [ImageName]

  /// What an image's bytes are kept under, and how many there are; nil where no such image is known.
  func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage?
}

/// An image that was let go of as its bytes are gone.
public struct LostImage: Sendable, Equatable {
  /// What they were kept under; nil where others need it, or have it still.
  public let name: ImageName?
  /// The jobs that had it.
  public let jobs: [JobID]

  /// Of those jobs.
  public init(_ name: ImageName?, jobs: [JobID]) {
    self.name = name
    self.jobs = jobs
  }
}

/// What became of a reservation.
public enum Reservation: Sendable, Equatable {
  /// Reserved: what its bytes are to be kept under. These images gave way and their bytes are to be removed first.
  case reserved(ImageName, evicted: [ImageName])
  /// There is no room even with every finished job's image gone.
  case full
  /// What is to give way is shared by so many that it takes several calls: ask again. These gave way all the same.
  case noRoomYet(evicted: [ImageName])
  /// The same image is just leaving: ask again once it is forgotten.
  case pendingDeletion
}
