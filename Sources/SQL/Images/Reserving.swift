package import Jobs

/// A request to reserve an image before it is stored.
struct ReserveRequest: Sendable {
  var image: ImageDigest
  var bytes: Int
  var holder: JobID
  var instance: Instance
  /// The limit for the bytes of all images.
  var limit: Int
  /// Whether other instances read the image by the name assigned here. Then the reservation must
  /// survive a crash of the server.
  var isNamed: Bool
}

extension SQLJobStore {
  /// Runs in one transaction together with other reservations. Images are evicted only if the limit
  /// is reached.
  package func reserve(
    _ image: ImageDigest, bytes: Int, as holder: JobID, of instance: Instance, limit: Int
  ) async throws(StoreError) -> Reservation {
    let request = ReserveRequest(
      image: image, bytes: bytes, holder: holder, instance: instance, limit: limit,
      isNamed: isShared)
    guard let reservation = try await writing.perform(.reserve(request)).reservation else {
      throw .unavailable(detail: "the request did not run")
    }
    return reservation
  }
}

extension Transaction {
  /// Reserves images with a fixed number of statements, as long as nothing has to be evicted.
  func reserve(_ requests: [ReserveRequest], _ totals: Totals) throws -> StoreOutcomes {
    let live = try Set(requests.map(\.instance)).filter(hasLease)
    let images = Set(requests.filter { live.contains($0.instance) }.map(\.image))
    let known = try lockedImages(images.map(\.bytes))
    let batch = ReservedImages(requests.filter { live.contains($0.instance) }, known)
    let fits = batch.fits(totals[.imageBytes])
    if fits {
      try insert(batch.new)
      try insert(batch.reserved)
    }
    return try requests.map { request in
      guard live.contains(request.instance) else { return .failure(.leaseLost) }
      var answer = StoreAnswer()
      if batch.leaving.contains(request.image) {
        answer.reservation = .pendingDeletion
      } else if fits, let name = batch.names[request.image] {
        answer.reservation = .reserved(name, evicted: [])
      } else {
        answer.reservation = try reserveWithEviction(request, totals)
      }
      return .success(answer)
    }
  }

  private func hasLease(_ instance: Instance) throws -> Bool {
    do {
      _ = try checkLease(of: instance)
      return true
    } catch StoreError.leaseLost { return false }
  }

  private func insert(_ images: [(name: ImageName, bytes: Int)]) throws {
    guard !images.isEmpty else { return }
    try add(
      "INSERT INTO images (digest, bytes, generation) SELECT * FROM unnest($1, $2, $3)",
      [
        .byteStrings(images.map(\.name.digest.bytes)), .ints(images.map { Int64($0.bytes) }),
        .ints(images.map(\.name.generation)),
      ])
    tallies[.images] += images.count
    tallies[.imageBytes] += images.reduce(0) { $0 + $1.bytes }
  }

  private func insert(_ requests: [ReserveRequest]) throws {
    guard !requests.isEmpty else { return }
    try add(
      """
      INSERT INTO reservations (holder, digest, instance) SELECT * FROM unnest($1, $2, $3) WHERE true
      ON CONFLICT DO NOTHING
      """,
      [
        .ids(requests.map(\.holder)), .byteStrings(requests.map(\.image.bytes)),
        .ints(requests.map(\.instance.number)),
      ])
  }

  /// Reserves an image that may require an eviction.
  private func reserveWithEviction(_ request: ReserveRequest, _ totals: Totals) throws
    -> Reservation
  {
    let digest = request.image.bytes
    let known = try lockedImages([digest]).first
    if known?.isPendingDeletion == true { return .pendingDeletion }
    let added = known == nil ? request.bytes : 0
    if totals[.imageBytes] + added > request.limit {
      guard try pinnedBytes(with: digest) + added <= request.limit else { return .full }
    }
    // Reserve an existing image first, so that it is not evicted for itself.
    if known != nil { try insert([request]) }
    // An image that needs the space of thousands of others gets it in several calls.
    let evicted = try evictImages(
      downTo: request.limit - added, atLeast: min(added, 1 << 20), totals, for: request.instance)
    if let known {
      return .reserved(
        ImageName(request.image, generation: known.generation), evicted: evicted)
    }
    guard totals[.imageBytes] + added <= request.limit else { return .incomplete(evicted: evicted) }
    let name = ImageName(request.image, generation: Image.newGeneration)
    try insert([(name: name, bytes: request.bytes)])
    try insert([request])
    return .reserved(name, evicted: evicted)
  }
}

/// The images of one transaction's reservations.
private struct ReservedImages {
  let reserved: [ReserveRequest]
  /// New images, sorted by digest: all transactions lock rows in this order.
  let new: [(name: ImageName, bytes: Int)]
  let names: [ImageDigest: ImageName]
  let leaving: Set<ImageDigest>

  init(_ requests: [ReserveRequest], _ known: [Transaction.Image]) {
    let known = known.compactMap { image in image.name.map { (name: $0, image.isPendingDeletion) } }
    let leaving = Set(known.filter(\.1).map(\.name.digest))
    var names = Dictionary(uniqueKeysWithValues: known.map { ($0.name.digest, $0.name) })
    var new: [(name: ImageName, bytes: Int)] = []
    for request in requests where names[request.image] == nil {
      let name = ImageName(request.image, generation: Transaction.Image.newGeneration)
      names[request.image] = name
      new.append((name: name, bytes: request.bytes))
    }
    self.new = new.sorted {
      $0.name.digest.bytes.lexicographicallyPrecedes($1.name.digest.bytes)
    }
    (self.names, self.leaving) = (names, leaving)
    reserved = requests.filter { !leaving.contains($0.image) }
  }

  /// Returns whether all new images fit within the smallest limit of the requests.
  func fits(_ total: Int) -> Bool {
    let limit = reserved.map(\.limit).min() ?? .max
    return total + new.reduce(0) { $0 + $1.bytes } <= limit
  }
}
