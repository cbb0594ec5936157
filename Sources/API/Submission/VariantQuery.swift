internal import Jobs

/// The query parameters that request a variant of an image.
struct VariantQuery: Sendable, Equatable {
  /// Its width and height are multiplied by `dpr`.
  var options = VariantRequest(name: "v0")
  /// Whether the format is the best one by the client's `Accept`.
  var isAuto = false

  /// The defaults.
  init() {}

  /// Reads its parameters from a query; nil if there are none. Mistakes are added to the query.
  ///
  /// - Parameters:
  ///   - formats: the formats that can be written.
  ///   - longest: the maximum of a side, in pixels.
  init?(_ query: inout Query, formats: Set<OutputFormat>, longest: Int) {
    let given = VariantOption.queried.filter { query.has($0.rawValue) }
    guard !given.isEmpty else { return nil }
    var decoder = VariantDecoder(
      named: options.name, formats, longest: longest, allowsAuto: true)
    for option in given {
      guard let text = query.value(option.rawValue) else { continue }
      let wrong =
        formats.isEmpty
        ? "The service cannot make variants." : decoder.set(option, to: option.value(in: text))
      if let wrong { query.addMistake(option.rawValue, wrong) }
    }
    for (option, detail) in decoder.finish() { query.addMistake(option.rawValue, detail) }
    (options, isAuto) = (decoder.request, decoder.isAuto)
  }

  /// The same variant as a member of a job; nil if its format or size depends on the image, or it may exceed the
  /// limits.
  func request(within limits: APIConfiguration.Limits) -> VariantRequest? {
    guard !isAuto else { return nil }
    if options.fit == .cover || options.fit == .fill || options.enlarge {
      guard let width = options.width, let height = options.height,
        width <= limits.maxPixels / max(1, height)
      else { return nil }
    }
    return options
  }

  /// The variant for a given image.
  func variant(
    of image: ImageDescription, _ accept: Accept, formats: Set<OutputFormat>
  ) -> Variant {
    let isTransparent = image.hasAlpha && options.background == nil
    var request = options
    if request.format == nil {
      let choice = FormatChoice(formats, for: image, isTransparent: isTransparent)
      let shows = request.isAnimated && image.frames > 1 && formats.contains(.webp)
      request.format = shows ? .webp : isAuto ? choice.best(accept) : choice.plain
    }
    return request.variant(of: image.format, isTransparent: isTransparent, formats: formats)
  }
}
