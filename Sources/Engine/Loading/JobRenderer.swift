internal import Jobs

/// A variant that a job wants, with its bytes.
struct RenderedVariant: Sendable {
  let rendition: Rendition
  let bytes: RenderedBytes
}

/// The reason why the stages after a load cannot continue.
enum FinishError: Error {
  case failed(JobFailure)
  /// The image's bytes are lost or damaged; the job has to load it again.
  case imageGone
}

/// Makes the variants of jobs whose image is stored.
///
/// Input: an image and the variants that a job wants. Output: the variants in the job's order. Cached variants come from
/// the cache, the others from the queue of ``Variants``, where owners take turns. One decode makes all that it can.
struct JobRenderer: Sendable {
  /// Nil if the service makes no variants.
  let variants: Variants?
  let staging: ImageStaging
  /// Whether owners share cached variants (`cache.shared`).
  let isShared: Bool

  /// The pause before a retry when the queue of renderings is full.
  private static let pause = Duration.milliseconds(200)

  /// Renders what a job wants.
  func render(
    _ submission: Submission, of image: StoredImage, for owner: Owner,
    at priority: @escaping @Sendable () -> Priority
  ) async throws(FinishError) -> [RenderedVariant] {
    guard let variants else { throw .failed(.codec(.unsupportedFormat(name: nil))) }
    return try await render(
      renditions(for: submission, of: image, owner, variants), by: variants, for: owner,
      at: priority, keeping: submission.keepsVariants)
  }

  /// Renders these variants. Retries for as long as the queue of renderings is full.
  private func render(
    _ wanted: [Rendition], by variants: Variants, for owner: Owner,
    at priority: @escaping @Sendable () -> Priority, keeping: Bool
  ) async throws(FinishError) -> [RenderedVariant] {
    var made: [CacheEntry.ID: RenderedBytes] = [:]
    while true {
      let missing = wanted.filter { made[$0.id] == nil }
      let outcomes = await variants.bytes(
        of: missing, for: owner, at: priority, keeping: keeping)
      for rendition in missing {
        do throws(JobsError) {
          made[rendition.id] = try outcomes[rendition.id]?.get()
        } catch {
          if error != .renderingsFull { throw FinishError(error) }
        }
      }
      guard made.count < Set(wanted.map(\.id)).count else { break }
      do { try await Task.sleep(for: Self.pause) } catch { throw .failed(.fetch(.cancelled)) }
    }
    return wanted.compactMap { rendition in
      made[rendition.id].map { RenderedVariant(rendition: rendition, bytes: $0) }
    }
  }

  /// The variants of a load's leading job, if all of them are cached or were made by the load's decode; otherwise nil.
  func variants(of loaded: LoadedImage, for leader: Job) async -> [RenderedVariant]? {
    guard let variants, !leader.submission.variants.isEmpty else { return nil }
    let (keeps, renditions) = (leader.submission.keepsVariants, variants.renditions)
    var all: [RenderedVariant] = []
    let wanted = self.renditions(for: leader.submission, of: loaded.image, leader.owner, variants)
    for (recipe, rendition) in zip(leader.submission.recipes, wanted) {
      if keeps, let kept = await renditions.bytes(of: rendition) {
        all.append(RenderedVariant(rendition: rendition, bytes: kept))
      } else if let bytes = loaded.variants[recipe],
        let new = try? await renditions.stage(bytes, for: leader.owner, isKept: keeps)
      {
        if keeps { await renditions.save(new, of: rendition) }
        all.append(RenderedVariant(rendition: rendition, bytes: new.bytes))
      } else {
        return nil
      }
    }
    return all
  }

  /// The renditions for a job's variants. All variants of a JPEG are decoded at one scale, so that a variant that is made
  /// again has the same bytes. Variants of a dropped image are never made again.
  private func renditions(
    for submission: Submission, of image: StoredImage, _ owner: Owner, _ variants: Variants
  ) -> [Rendition] {
    let recipes = submission.recipes
    let scaled = submission.dropsOriginal ? recipes : variants.scaled(recipes, of: image)
    return scaled.map { recipe in
      let rendition = variants.rendition(of: image, as: recipe)
      return isShared ? rendition : rendition.unshared(for: owner)
    }
  }

  /// Opens the bytes of one variant of a job whose variants are made.
  func content(
    ofVariant name: String, of image: StoredImage, for job: Job
  ) async throws(FinishError) -> DeliveredContent {
    guard let place = job.submission.variants.firstIndex(where: { $0.name == name }),
      place < image.variants.count
    else { throw .failed(.internal) }
    let made = image.variants[place]
    let bytes: RenderedBytes
    if let bundle = image.bundle {
      let whole = try await staging.open(bundle.digest)
      bytes = RenderedBytes(whole.part(image.range(of: place)), entityTag: made.entityTag)
    } else {
      guard let variants else { throw .failed(.internal) }
      let wanted = renditions(for: job.submission, of: image, job.owner, variants)[place]
      let rendered = try await render(
        [wanted], by: variants, for: job.owner, at: { job.priority },
        keeping: job.submission.keepsVariants)
      bytes = rendered[0].bytes
    }
    guard let digest = ImageDigest(entityTag: bytes.entityTag) else { throw .failed(.internal) }
    return DeliveredContent(bytes.bytes, digest, made.format)
  }
}

extension Submission {
  /// The variants that it wants, without their names.
  var recipes: [VariantRequest] { variants.map(\.recipe) }

  /// Whether its variants are cached. Variants of a dropped image belong to the job only.
  var keepsVariants: Bool { cacheMode != .noStore && !dropsOriginal }
}

extension StoredImage {
  /// Returns the image with a job's variants, under the job's names for them.
  func with(_ rendered: [RenderedVariant], for submission: Submission) -> StoredImage {
    var image = self
    image.variants = zip(submission.variants, rendered).map { request, variant in
      MadeVariant(request.name, variant.rendition, variant.bytes)
    }
    return image
  }
}

extension FinishError {
  init(_ error: JobsError) {
    switch error {
    case .unrenderable(let error): self = .failed(.codec(error))
    case .abandoned, .draining: self = .failed(.fetch(.cancelled))
    case .store(let error): self = .failed(JobFailure(error))
    case .imageGone: self = .imageGone
    default: self = .failed(.internal)
    }
  }
}

extension Variants {
  func rendition(of image: StoredImage, as request: VariantRequest) -> Rendition {
    let renderer = rendering.renderer
    let variant = request.variant(
      of: image.description.format, isTransparent: image.description.hasAlpha,
      formats: renderer.formats)
    return Rendition(of: image, as: variant, by: renderer)
  }

  /// Sets the decode scale of each variant of an image. One decode makes all variants of a JPEG, at one scale; with the
  /// same scale, a variant that is made again has the same bytes.
  func scaled(_ requests: [VariantRequest], of image: StoredImage) -> [VariantRequest] {
    // Variants of other formats are the same when made alone.
    guard requests.count > 1, image.description.format == .jpeg else { return requests }
    let renderer = rendering.renderer
    let own = requests.map { request in
      renderer.shrink(
        for: request.variant(of: .jpeg, isTransparent: false, formats: renderer.formats),
        from: image.description)
    }
    let least = own.min()
    return zip(requests, own).map { request, own in
      var scaled = request
      scaled.shrink = own == least ? nil : least
      return scaled
    }
  }

  /// The variants that a job wants, if all of them are cached; otherwise nil.
  func kept(
    _ requests: [VariantRequest], of image: StoredImage, apartFor owner: Owner?
  ) async -> [MadeVariant]? {
    var made: [MadeVariant] = []
    for request in scaled(requests, of: image) {
      var rendition = rendition(of: image, as: request)
      if let owner { rendition = rendition.unshared(for: owner) }
      guard let bytes = await renditions.bytes(of: rendition) else { return nil }
      made.append(MadeVariant(request.name, rendition, bytes))
    }
    return made
  }
}
