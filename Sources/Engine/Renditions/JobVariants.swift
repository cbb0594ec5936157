internal import Jobs

/// The variants that jobs want with their image: those that its decode made, and those that have to be rendered, each
/// once for all jobs of a load.
struct JobVariants {
  /// By what they are, whatever the jobs call them.
  private var outcomes: [VariantRequest: Result<(rendition: Rendition, bytes: Int), JobFailure>] =
    [:]

  /// Sees to it that what the jobs want is there.
  ///
  /// - Parameters:
  ///   - obtained: the image, and what its decode made.
  ///   - variants: nil: none are made.
  mutating func make(
    for jobs: [Job], of obtained: LoadedImage, by variants: Variants?, isShared: Bool
  ) async {
    for job in jobs {
      for request in job.submission.variants where outcomes[request.recipe] == nil {
        let recipe = request.recipe
        do throws(JobsError) {
          guard let variants else { throw .unrenderable(.unsupportedFormat(name: nil)) }
          var rendition = variants.rendition(of: obtained.image, as: recipe)
          if !isShared { rendition = rendition.apart(for: job.owner) }
          let bytes = try await variants.make(
            rendition, made: obtained.variants[recipe], of: obtained.embedded?.content,
            keeping: job.submission.cacheMode != .noStore)
          outcomes[recipe] = .success((rendition, bytes))
        } catch {
          outcomes[recipe] = .failure(JobFailure(error))
        }
      }
    }
  }

  /// The image with those that the job wants.
  func image(_ image: StoredImage, for job: Job) throws(JobFailure) -> StoredImage {
    var image = image
    var made: [MadeVariant] = []
    for request in job.submission.variants {
      guard let outcome = outcomes[request.recipe] else { throw .internal }
      let (rendition, bytes) = try outcome.get()
      made.append(MadeVariant(request.name, rendition, bytes: bytes))
    }
    image.variants = made
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

  /// Those that a job wants of an image, where all of them are kept; nil otherwise.
  func kept(
    _ requests: [VariantRequest], of image: StoredImage, apartFor owner: Owner?
  ) async -> [MadeVariant]? {
    var made: [MadeVariant] = []
    for request in requests {
      var rendition = rendition(of: image, as: request)
      if let owner { rendition = rendition.apart(for: owner) }
      guard let bytes = await renditions.bytes(of: rendition) else { return nil }
      made.append(MadeVariant(request.name, rendition, bytes: bytes.count))
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
