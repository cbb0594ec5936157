/// What a job has between its load and its success: the image, and which of its variants and deliveries are done.
///
/// It is durable with the job's record, and the image is referred to. After a crash the job goes on from here.
public struct PendingResult: Sendable, Equatable, Codable {
  /// The loaded image. It has its variants, and its bundle where its own bytes are dropped, once these are made.
  public var image: StoredImage
  /// What the cache did for the load; nil for other sources than URLs.
  public var cache: CacheOutcome?
  /// What was delivered, in the order of ``Submission/deliveryOrder``.
  public var deliveries: [Delivered] = []
  /// When deliveries end in failure; nil until the first one is due.
  public var deliverUntil: Timestamp?

  /// A loaded image.
  public init(_ image: StoredImage, _ cache: CacheOutcome?) {
    (self.image, self.cache) = (image, cache)
  }
}

extension PendingResult {
  /// Whether all variants of a job that asks this are made.
  public func isRendered(for submission: Submission) -> Bool {
    image.variants.count == submission.variants.count
      && (image.bundle != nil || !submission.dropsOriginal)
  }

  /// What was delivered, in the order in which the job asks for it.
  public func deliveriesAsAsked(by submission: Submission) -> [Delivered] {
    zip(submission.deliveryOrder, deliveries).sorted { $0.0 < $1.0 }.map(\.1)
  }
}

extension Submission {
  /// Whether its job succeeds as soon as its image is loaded.
  public var wantsImageOnly: Bool { variants.isEmpty && deliveries.isEmpty }

  /// The order in which its deliveries are made, as indices: that of the request. Originals whose bytes are dropped come
  /// first, because they are there only until the variants are made.
  public var deliveryOrder: [Int] {
    let all = Array(deliveries.indices)
    guard dropsOriginal else { return all }
    return all.filter { deliveries[$0].variant == nil }
      + all.filter { deliveries[$0].variant != nil }
  }
}
