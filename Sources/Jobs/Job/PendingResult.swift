/// What a job has between its load and its success: the image, and the finished variants and deliveries.
///
/// It is stored in the job's record, and the job refers to the image. After a crash the job continues from
/// here.
package struct PendingResult: Sendable, Equatable, Codable {
  /// The loaded image. It gets its variants once they are made, and then its bundle if the original is
  /// dropped.
  package var image: StoredImage
  /// The cache's part in the load; nil for sources other than URLs.
  package var cache: CacheOutcome?
  /// The deliveries made so far, in the order of ``Submission/deliveryOrder``.
  package var deliveries: [Delivered] = []
  /// When unfinished deliveries fail the job; nil before the first delivery is due.
  package var deliverUntil: Timestamp?

  package init(_ image: StoredImage, _ cache: CacheOutcome?) {
    (self.image, self.cache) = (image, cache)
  }
}

extension PendingResult {
  /// Whether all variants of the submission are made.
  package func isRendered(for submission: Submission) -> Bool {
    image.variants.count == submission.variants.count
      && (image.bundle != nil || !submission.dropsOriginal)
  }

  /// The deliveries made so far, in the order of the request.
  package func deliveriesInRequestOrder(of submission: Submission) -> [Delivered] {
    zip(submission.deliveryOrder, deliveries).sorted { $0.0 < $1.0 }.map(\.1)
  }
}

extension Submission {
  /// Whether the job succeeds as soon as its image is loaded.
  package var wantsImageOnly: Bool { variants.isEmpty && deliveries.isEmpty }

  /// The order of the deliveries, as indices into ``deliveries``. Normally the order of the request. If the
  /// original is dropped, its deliveries come first, because its bytes exist only until the variants are
  /// made.
  package var deliveryOrder: [Int] {
    let all = Array(deliveries.indices)
    guard dropsOriginal else { return all }
    return all.filter { deliveries[$0].variant == nil }
      + all.filter { deliveries[$0].variant != nil }
  }
}
