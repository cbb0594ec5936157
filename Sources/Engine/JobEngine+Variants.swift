public import Jobs

/// Other pictures of a kept image.
extension JobEngine {
  /// The formats that variants can be written in; none where none are made.
  public var outputFormats: Set<OutputFormat> { variants?.rendering.renderer.formats ?? [] }

  /// What a variant of an image comes out as; nothing is rendered. Nil where none are made.
  public func rendition(of image: StoredImage, as variant: Variant) -> Rendition? {
    variants.map { Rendition(of: image, as: variant, by: $0.rendering.renderer) }
  }

  /// The bytes of a rendition of the job's image, or of its placeholder: kept ones, or rendered now, once for all
  /// who ask at the same time. When the calling task is cancelled and no other one waits, the rendering stops. What is
  /// made for a job that asked for `no-store` is not kept.
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`, `.abandoned`, `.draining`, `.store`.
  public func open(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> StoredBytes {
    guard let variants = variants else { throw .unrenderable(.unsupportedFormat(name: nil)) }
    guard case .image = rendition.source else {
      // Images that people wait for come before placeholders.
      return try await variants.placeholder(rendition, at: .veryLow)
    }
    return try await variants.bytes(
      of: configuration.cache.isShared ? rendition : rendition.apart(for: job.owner),
      at: job.priority, keeping: job.submission.cacheMode != .noStore)
  }
}

/// Placeholders: pictures in place of images that are not there.
extension JobEngine {
  /// The operator's picture; nil: the built-in one is drawn.
  public func picture(for placeholder: Placeholder) -> PlaceholderPicture? {
    configuration.placeholders[placeholder]
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
