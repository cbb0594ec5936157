package import Jobs

/// References to images, and their sizes.
extension MemoryJobStore {
  package func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation {
    try await mayFail()
    try check(instance)
    if pendingDeletion[image] != nil { return .pendingDeletion }
    let pinned = sizes.filter { isPinned($0.key) || $0.key == image }
    let needed = pinned.values.reduce(0, +) + (sizes[image] == nil ? bytes : 0)
    guard needed <= limit else { return .full }
    reservations[holder, default: (instance, [])].images.insert(image)
    let isNew = sizes[image] == nil
    sizes[image] = sizes[image] ?? bytes
    var evicted: [ImageName] = []
    while sizes.values.reduce(0, +) > limit,
      let next = nextToGiveWay(
        within: isNew ? limit - bytes : limit, besides: isNew ? image : nil)
    {
      evict(next, for: instance)
      evicted.append(name(of: next))
    }
    return .reserved(name(of: image), evicted: evicted)
  }

  package func markLost(_ image: ImageDigest, for instance: Instance) async throws(StoreError)
    -> LostImage?
  {
    try await mayFail()
    guard sizes[image] != nil, !isPinned(image) else { return nil }
    let jobs = rows.values.map(\.job).filter {
      $0.keptImage?.keptDigest == image
    }
    evict(image, for: instance)
    return LostImage(name(of: image), jobs: jobs.map(\.id))
  }

  package func release(_ holder: JobID) async throws(StoreError) {
    try await mayFail()
    reservations[holder] = nil
  }

  package func markOrphans(
    _ images: [ImageName], for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await mayFail(.orphans)
    looksForOrphans += 1
    let unknown = images.filter { sizes[$0.digest] == nil && pendingDeletion[$0.digest] == nil }
    for image in unknown { pendingDeletion[image.digest] = (instance, 0) }
    return unknown
  }

  package func keptImage(_ digest: ImageDigest) async throws(StoreError) -> KeptImage? {
    sizes[digest].map { KeptImage(name(of: digest), bytes: $0) }
  }

  package func unreferencedImages(
    _ count: Int, for instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    try await mayFail()
    let abandoned = sizes.keys.filter { !isReferred($0) }.prefix(count)
    for digest in abandoned { evict(digest, for: instance) }
    let names = abandoned.map { name(of: $0) }
    do throws(StoreError) { try await mayFail(.abandonedAnswer) } catch {
      unheard += names
      throw error
    }
    return names
  }

  package func imagesPendingDeletion(
    _ count: Int, of instance: Instance
  ) async throws(StoreError) -> [ImageName] {
    let images = Array(unheard.prefix(count))
    await mayWait(.leavingAnswer)
    return images
  }

  package func confirmDeletion(_ images: [ImageName]) async throws(StoreError) {
    await mayWait(.forget)
    try loseAnswer(of: .forget)
    unheard.removeAll { images.contains($0) }
    for image in images.map(\.digest) {
      pendingDeletion[image] = nil
      if !isReferred(image) { (sizes[image], imageOwners[image]) = (nil, nil) }
    }
    try loseAnswer(of: .forgetAnswer)
  }

  package func refers(to image: ImageDigest) async throws(StoreError) -> Bool { isReferred(image) }

  /// The images to evict: those without references first, then the one whose finished job or cache entry is oldest. If an owner
  /// has more than half, only that owner's images are considered.
  private func nextToGiveWay(within limit: Int, besides new: ImageDigest?) -> ImageDigest? {
    var shares: [String: Int] = [:]
    for (image, bytes) in sizes where image != new {
      shares[imageOwners[image]?.name ?? "", default: 0] += bytes
    }
    let total = shares.values.reduce(0, +)
    let most = shares.filter { !$0.key.isEmpty }.max { ($0.value, $0.key) < ($1.value, $1.key) }
    let isOver = most.map { $0.value > limit - limit / 2 && $0.value < total } ?? false
    let images = sizes.keys.filter { !isPinned($0) }
    let ofOwner = images.filter { isOver && (imageOwners[$0]?.name ?? "") == most?.key }
    let abandoned = images.filter { oldest($0) == nil }
    return [abandoned, ofOwner, images].first { !$0.isEmpty }?.min { a, b in
      let (first, second) = (oldest(a) ?? .first, oldest(b) ?? .first)
      return first == second ? a.hex < b.hex : first < second
    }
  }

  func evict(_ image: ImageDigest, for instance: Instance) {
    for (id, row) in rows {
      if row.source == image { rows[id]?.source = nil }
      if row.job.keptImage?.keptDigest == image {
        rows[id]?.job.markImageEvicted()
      }
    }
    cache = cache.filter { $0.value.image.digest != image }
    imageOwners[image] = nil
    if let bytes = sizes.removeValue(forKey: image) { pendingDeletion[image] = (instance, bytes) }
  }

  private func isPinned(_ image: ImageDigest) -> Bool {
    reservations.values.contains { $0.images.contains(image) }
      || rows.values.contains { $0.source == image && !$0.job.phase.isFinished }
  }

  private func isReferred(_ image: ImageDigest) -> Bool { isPinned(image) || oldest(image) != nil }

  private func oldest(_ image: ImageDigest) -> Timestamp? {
    let jobs = rows.values.filter {
      $0.source == image || $0.job.keptImage?.keptDigest == image
    }.compactMap(\.job.finishedAt)
    let entries = cache.values.filter { $0.image.digest == image }.map(\.stored)
    return (jobs + entries).min()
  }
}

extension Timestamp {
  fileprivate static let first = Timestamp(milliseconds: .min)
}

extension MemoryJobStore: ImageOwner {
  package func name() async throws(StoreError) -> String { "\(ObjectIdentifier(self))" }
}
