public import Jobs

/// Other pictures of a kept image.
extension JobEngine {
  /// The formats that variants can be written in; none where none are made.
  public var outputFormats: Set<OutputFormat> { variants?.rendering.renderer.formats ?? [] }

  /// What a variant of an image comes out as; nothing is rendered. Nil where none are made.
  public func rendition(of image: StoredImage, as variant: Variant) -> Rendition? {
    variants.map { Rendition(of: image, as: variant, by: $0.rendering.renderer) }
  }

  /// The bytes of a rendition of the job's image: kept ones, or rendered now, once for all who ask at the same time. When
  /// the calling task is cancelled and no other one waits, the rendering stops. What is made for a job that asked for
  /// `no-store` is not kept. Of an image whose own bytes were dropped there are the variants that its job wanted.
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`, `.abandoned`, `.draining`, `.store`.
  public func open(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    guard let variants = variants else { throw .unrenderable(.unsupportedFormat(name: nil)) }
    var rendition = rendition
    if let image = job.image {
      let wanted = job.submission.variants
      let place = wanted.firstIndex { variants.rendition(of: image, as: $0).id == rendition.id }
      if let bundle = image.bundle {
        guard let place, place < image.variants.count,
          let whole = try await openImage(bundle.digest)
        else { throw .imageGone }
        return RenderedBytes(
          whole.part(image.place(of: place)), entityTag: image.variants[place].entityTag)
      }
      // As it was made with the others: the job tells those bytes' tag.
      if let place {
        rendition = variants.rendition(of: image, as: variants.scaled(wanted, of: image)[place])
      }
    }
    return try await variants.bytes(
      of: configuration.cache.isShared ? rendition : rendition.apart(for: job.owner),
      for: job.owner, at: job.priority, keeping: job.submission.cacheMode != .noStore)
  }
}

/// Placeholders: pictures in place of images that are not there.
extension JobEngine {
  /// The operator's picture; nil: the built-in one is drawn.
  public func picture(for placeholder: Placeholder) -> PlaceholderPicture? {
    configuration.placeholders[placeholder]
  }

  /// The bytes of a placeholder's rendition, likewise. Images that people wait for come before placeholders.
  /// - Throws: `.renderingsFull`, `.unrenderable`, `.abandoned`, `.draining`.
  public func openPlaceholder(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    guard let variants = variants else { throw .unrenderable(.unsupportedFormat(name: nil)) }
    return try await variants.placeholder(rendition, for: job.owner, at: .veryLow)
  }

  /// What it comes out as; nothing is rendered. Nil where nothing is.
  /// - Parameter variant: of a built-in one the fit means nothing: it is drawn at that width and height.
  public func rendition(of placeholder: Placeholder, as variant: Variant) -> Rendition? {
    variants.map { variants in
      guard let picture = picture(for: placeholder) else {
        return Rendition(drawing: placeholder, as: variant)
      }
      return Rendition(of: picture, as: variant, by: variants.rendering.renderer)
    }
  }
}
