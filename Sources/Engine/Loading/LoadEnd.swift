internal import Jobs

/// Decides what each job gets when its load ends: the image, the image with the leader's variants, or a pending result.
struct LoadEnd {
  var loaded: LoadedImage
  /// The variants that the leading job wants.
  private let recipes: [VariantRequest]
  private let rendered: [RenderedVariant]?
  /// The leader's variants, which replace the image; nil if the jobs keep the image.
  private(set) var bundle: KeptBundle?
  private var bundleFailure: JobFailure?

  private init(_ loaded: LoadedImage, _ recipes: [VariantRequest], _ rendered: [RenderedVariant]?) {
    (self.loaded, self.recipes, self.rendered) = (loaded, recipes, rendered)
  }

  /// Stores the variants that the load's decode made for its leader. Not an `async` initializer, which would change threads.
  static func make(
    of loaded: LoadedImage, for load: Load, by renderer: JobRenderer
  ) async -> LoadEnd {
    let leader = load.leader
    let areMade = !loaded.variants.isEmpty
    if areMade { load.stages?.begin(.variants) }
    let rendered = await renderer.variants(of: loaded, for: leader)
    if areMade { load.stages?.end(.variants) }
    var end = LoadEnd(loaded, leader.submission.recipes, rendered)
    guard load.dropsOriginal, let rendered else { return end }
    do throws(JobFailure) {
      end.bundle = try await renderer.staging.keepBundle(
        of: rendered, as: load.reserving, for: leader.id)
    } catch {
      end.bundleFailure = error
    }
    return end
  }

  /// Whether the job stores the bundle of variants instead of the image.
  func isBundled(_ job: Job) -> Bool {
    rendered != nil && job.submission.dropsOriginal && job.submission.recipes == recipes
      // Deliveries of the image itself must happen before the bundle replaces it.
      && job.submission.deliveries.allSatisfy { $0.variant != nil }
  }

  func ending(of job: Job) -> JobCompleter.Ending {
    let wanted = job.submission
    // The stored response replaced an error of the origin. A job that requires another digest fails with that error.
    if let error = loaded.replaced, let expected = wanted.integrity,
      expected != loaded.image.digest
    {
      return .failure(.fetch(error))
    }
    var image = loaded.image.seen(as: job.target)
    if wanted.wantsImageOnly { return .success(image, loaded.cache) }
    if isBundled(job) || (!wanted.dropsOriginal && wanted.recipes == recipes), let rendered {
      image = image.with(rendered, for: wanted)
      if wanted.dropsOriginal {
        guard let bundle else { return .failure(bundleFailure ?? .internal) }
        image.bundle = bundle.bundle
      }
      if wanted.deliveries.isEmpty { return .success(image, loaded.cache) }
    }
    // The image was not stored, because the leader's variants were enough. This job joined later and needs the image.
    guard loaded.isAvailable || image.bundle != nil else { return .requeue }
    return .pending(PendingResult(image, loaded.cache))
  }
}
