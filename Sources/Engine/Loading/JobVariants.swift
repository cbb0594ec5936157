internal import Jobs

/// What makes the variants that jobs want with their image.
struct VariantMakers: Sendable {
  /// Nil where none are made.
  let variants: Variants?
  let staging: ImageStaging
  /// Whether what is kept is everybody's (`cache.shared`).
  let isShared: Bool
}

extension Submission {
  /// The variants that it wants, whatever it calls them.
  var recipes: [VariantRequest] { variants.map(\.recipe) }
}

/// The variants that the jobs of a load want with their image: those that its decode made, and those that have to be
/// rendered, each once for all. What jobs keep in the place of a dropped image is put together here.
struct JobVariants {
  private struct Made {
    let rendition: Rendition
    let bytes: RenderedBytes
  }

  private let loaded: LoadedImage
  private let makers: VariantMakers
  /// What the image's decode made, by what it is and the scale that it was read at.
  private let made: [VariantRequest: [UInt8]]
  /// What jobs get for what they want: worked out once for the thousands that want the same.
  private var known: [[VariantRequest]: [VariantRequest]] = [[]: []]
  /// By what they are, whatever the jobs call them.
  private var outcomes: [VariantRequest: Result<Made, JobFailure>] = [:]
  /// Those of the jobs that end next, by what is in them.
  private var bundles: [[VariantRequest]: Result<VariantBundle, JobFailure>] = [:]
  /// Such a one, for the job store to keep.
  private(set) var embedded: EmbeddedImage?

  /// None so far.
  init(of loaded: LoadedImage, in makers: VariantMakers) {
    (self.loaded, self.makers) = (loaded, makers)
    let scaled = makers.variants?.scaled(loaded.wanted, of: loaded.image) ?? loaded.wanted
    let files = zip(scaled, loaded.wanted).compactMap { recipe, request in
      loaded.variants[request].map { (recipe, $0) }
    }
    made = Dictionary(files) { first, _ in first }
  }

  /// What a job wants, by what it is. A variant that may have to be made again is as it is beside the job's others,
  /// whichever jobs share the load.
  private mutating func recipes(of job: Job) -> [VariantRequest] {
    let wanted = job.submission.recipes
    if let recipes = known[wanted] { return recipes }
    var recipes = wanted
    if let variants = makers.variants, !job.submission.dropsOriginal {
      recipes = variants.scaled(wanted, of: loaded.image)
    }
    known[wanted] = recipes
    return recipes
  }

  /// Sees to it that what the jobs want is there.
  mutating func make(for jobs: [Job]) async {
    for job in jobs {
      let missing = recipes(of: job).filter { outcomes[$0] == nil }
      if !missing.isEmpty { await make(missing, for: job) }
    }
  }

  /// Whether nothing that the job wants is still to be made.
  mutating func isMade(for job: Job) -> Bool { recipes(of: job).allSatisfy { outcomes[$0] != nil } }

  private mutating func make(_ recipes: [VariantRequest], for job: Job) async {
    guard let variants = makers.variants else {
      for recipe in recipes { outcomes[recipe] = .failure(.codec(.unsupportedFormat(name: nil))) }
      return
    }
    let drops = job.submission.dropsOriginal
    let keeps = job.submission.cacheMode != .noStore && !drops
    let wanted = recipes.map { recipe in
      let rendition = variants.rendition(of: loaded.image, as: recipe)
      return Variants.Wanted(
        rendition: makers.isShared ? rendition : rendition.apart(for: job.owner),
        made: drops ? loaded.variants[recipe] : made[recipe])
    }
    let results = await variants.make(
      wanted, of: loaded.embedded?.content, isAtHand: loaded.isAtHand, for: job.owner,
      keeping: keeps)
    for (recipe, one) in zip(recipes, wanted) {
      outcomes[recipe] = results[one.rendition.id]?
        .map { Made(rendition: one.rendition, bytes: $0) }
        .mapError { JobFailure($0) }
    }
  }

  /// Sees to it that what these jobs, which end next, keep in the place of their image outlives the load. Where that is
  /// little and the same for all, the transaction that ends them takes it along.
  mutating func keepBundles(for jobs: [Job], of load: Load) async {
    // What was for others may be gone with them, or was never stored: who comes later with the same has it kept anew.
    (bundles, embedded) = ([:], nil)
    let wanted = Set(jobs.filter(\.submission.dropsOriginal).map(\.submission.recipes))
    for recipes in wanted {
      // What failed is told by the job's variants.
      let all = recipes.compactMap { try? outcomes[$0]?.get().bytes.bytes }
      guard all.count == recipes.count else { continue }
      let content = all.flatMap { $0.read(at: 0, count: $0.count) }
      do throws(JobFailure) {
        let digest: ImageDigest
        if wanted.count == 1, content.count <= makers.staging.largestEmbedded, !load.isBackground {
          digest = ImageDigest(of: content)
          embedded = EmbeddedImage(digest: digest, content: content)
        } else {
          digest = try await makers.staging.keep(content, for: load)
        }
        bundles[recipes] = .success(VariantBundle(digest: digest, bytes: content.count))
      } catch {
        bundles[recipes] = .failure(error)
      }
    }
  }

  /// What was loaded.
  var image: StoredImage { loaded.image }

  /// The image's own bytes, where they are in memory.
  var original: DeliveredContent? {
    loaded.embedded.map { DeliveredContent(loaded.image, .memory($0.content)) }
  }

  /// The bytes of a variant that the job wants.
  func content(ofVariant name: String, for job: Job) throws(JobFailure) -> DeliveredContent {
    guard let place = job.submission.variants.firstIndex(where: { $0.name == name }),
      let recipes = known[job.submission.recipes], let outcome = outcomes[recipes[place]]
    else { throw .internal }
    let made = try outcome.get()
    // Not hashed again: whoever delivers it has no thread for that.
    guard let digest = ImageDigest(entityTag: made.bytes.entityTag) else { throw .internal }
    return DeliveredContent(made.bytes.bytes, digest, made.rendition.variant.format)
  }

  /// The image as the job has it: with the variants that it wants.
  func image(for job: Job) throws(JobFailure) -> StoredImage {
    guard let recipes = known[job.submission.recipes] else { throw .internal }
    var image = loaded.image.seen(as: job.target)
    var made: [MadeVariant] = []
    for (request, recipe) in zip(job.submission.variants, recipes) {
      guard let outcome = outcomes[recipe] else { throw .internal }
      let variant = try outcome.get()
      made.append(MadeVariant(request.name, variant.rendition, variant.bytes))
    }
    image.variants = made
    guard job.submission.dropsOriginal else { return image }
    guard let bundle = bundles[job.submission.recipes] else { throw .internal }
    image.bundle = try bundle.get()
    return image
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

  /// What a job wants of an image, each with the scale that it is read at beside the others: all of a JPEG's are made by
  /// the decode that proves it, and come out the same when one of them is made again.
  func scaled(_ requests: [VariantRequest], of image: StoredImage) -> [VariantRequest] {
    // Other formats' come out the same alone.
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

  /// What a job wants of its image.
  fileprivate struct Wanted {
    let rendition: Rendition
    /// Its bytes, where the image's decode made them.
    let made: [UInt8]?
  }

  /// Sees to it that what a job wants is there: kept, made by the image's decode, or rendered now, outside the queue and
  /// by one decode what can be made by one.
  ///
  /// - Parameters:
  ///   - content: the image's bytes, where nobody can open it yet.
  ///   - isAtHand: false where nobody has the image any more: a job that came late has it fetched again.
  ///   - owner: whose share of the space for results they take.
  ///   - keeping: whether the cache may be used.
  /// - Returns: all of them; failures as ``bytes(of:for:at:keeping:)`` has them.
  fileprivate func make(
    _ wanted: [Wanted], of content: [UInt8]?, isAtHand: Bool, for owner: Owner, keeping: Bool
  ) async -> [CacheEntry.ID: Result<RenderedBytes, JobsError>] {
    var results: [CacheEntry.ID: Result<RenderedBytes, JobsError>] = [:]
    var decodes: [[Rendition]] = []
    // What is made comes before what may be the same by another name.
    let inOrder = wanted.filter { $0.made != nil } + wanted.filter { $0.made == nil }
    for one in inOrder where results[one.rendition.id] == nil {
      let rendition = one.rendition
      if keeping, let kept = await renditions.bytes(of: rendition) {
        results[rendition.id] = .success(kept)
      } else if let bytes = one.made {
        do throws(StoreError) {
          let new = try await renditions.stage(bytes, for: owner, isKept: keeping)
          if keeping { await renditions.keep(new, of: rendition) }
          results[rendition.id] = .success(new.bytes)
        } catch {
          results[rendition.id] = .failure(.store(error))
        }
      } else {
        // Unless it is rendered below: once, whatever it is called.
        results[rendition.id] = .failure(.abandoned)
        if isAtHand { add(rendition, to: &decodes) }
      }
    }
    for decode in decodes {
      let rendered = await render(decode, of: content, for: owner, keeping: keeping)
      for (rendition, result) in zip(decode, rendered) {
        if keeping, let new = try? result.get() { await renditions.keep(new, of: rendition) }
        results[rendition.id] = result.map(\.bytes)
      }
    }
    return results
  }

  private func add(_ rendition: Rendition, to decodes: inout [[Rendition]]) {
    let place = decodes.firstIndex { others in
      rendition.decode != nil && rendition.decode == others[0].decode
        && rendering.fits(others + [rendition])
    }
    if let place { decodes[place].append(rendition) } else { decodes.append([rendition]) }
  }

  /// Those that a job wants of an image, where all of them are kept; nil otherwise.
  func kept(
    _ requests: [VariantRequest], of image: StoredImage, apartFor owner: Owner?
  ) async -> [MadeVariant]? {
    var made: [MadeVariant] = []
    for request in scaled(requests, of: image) {
      var rendition = rendition(of: image, as: request)
      if let owner { rendition = rendition.apart(for: owner) }
      guard let bytes = await renditions.bytes(of: rendition) else { return nil }
      made.append(MadeVariant(request.name, rendition, bytes))
    }
    return made
  }
}

extension JobFailure {
  /// Why a variant that a job wants is not there.
  fileprivate init(_ error: JobsError) {
    switch error {
    case .unrenderable(let error): self = .codec(error)
    case .abandoned, .draining: self = .fetch(.cancelled)
    case .store(let error): self = JobFailure(error)
    default: self = .internal
    }
  }
}
