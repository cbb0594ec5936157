internal import Jobs

/// Decodes `variants`: the variants that are made before the job succeeds.
extension SubmissionDecoder {
  mutating func variants(_ value: JSONValue, at location: Location) -> [VariantRequest] {
    guard case .array(let elements) = value, elements.count <= VariantRequest.most else {
      addMistake(location, "Must be an array of at most \(VariantRequest.most) variants.")
      return []
    }
    guard elements.isEmpty || !formats.isEmpty else {
      addMistake(location, "The service cannot make variants.")
      return []
    }
    var variants: [VariantRequest] = []
    for (index, element) in elements.enumerated() {
      let location = location.child("\(index)")
      guard let variant = variant(element, named: "v\(index)", at: location) else { continue }
      if variants.contains(where: { $0.name == variant.name }) {
        addMistake(location.child("name"), "Another variant has this name.")
      } else {
        variants.append(variant)
      }
    }
    return variants
  }

  private mutating func variant(
    _ value: JSONValue, named name: String, at location: Location
  ) -> VariantRequest? {
    guard case .object(let members) = value else {
      addMistake(location, "A variant must be an object, not \(value.kind).")
      return nil
    }
    var request = VariantRequest(name: name)
    var density = 1.0
    for member in members {
      guard let wrong = set(member, of: &request, &density) else { continue }
      self.addMistake(location.child(member.name), wrong)
    }
    if request.isAnimated, let format = request.format, format != .webp {
      addMistake(location.child("animated"), "Animations can be written as webp only.")
    }
    let sides = [request.width, request.height].map { $0.map { (Double($0) * density).rounded() } }
    let isTooLong = sides.map { ($0 ?? 1) > Double(limits.maxDimension) }
    for (name, isTooLong) in zip(["width", "height"], isTooLong) where isTooLong {
      addMistake(
        location.child(name), "Multiplied by dpr it is more than \(limits.maxDimension) pixels.")
    }
    if isTooLong.contains(true) { return nil }
    (request.width, request.height) = (sides[0].map { Int($0) }, sides[1].map { Int($0) })
    if let width = request.width, let height = request.height,
      request.fit == .fill || request.fit == .cover, width > limits.maxPixels / max(1, height)
    {
      addMistake(location, "The variant would have more than \(limits.maxPixels) pixels.")
    }
    return request
  }

  /// - Returns: the detail of the mistake, or nil.
  private func set(
    _ member: JSONValue.Member, of request: inout VariantRequest, _ density: inout Double
  ) -> String? {
    let value = member.value
    func side() -> Int? { value.int.flatMap { 1...limits.maxDimension ~= $0 ? $0 : nil } }
    let words = "Must be an integer from 1 to \(limits.maxDimension)."
    switch member.name {
    case "name":
      guard let name = value.string, Self.isVariantName(name) else {
        return "Must have 1 to 32 of the characters a to z, 0 to 9, _ and -."
      }
      request.name = name
    case "width":
      request.width = side()
      return request.width == nil ? words : nil
    case "height":
      request.height = side()
      return request.height == nil ? words : nil
    case "fit":
      guard let fit = value.string.flatMap(Variant.Fit.init) else {
        return "Must be one of \(Variant.Fit.allCases.map(\.rawValue).joined(separator: ", "))."
      }
      request.fit = fit
    case "position":
      guard let position = value.string.flatMap(Variant.Position.init) else {
        return Variant.Position.words
      }
      request.position = position
    case "enlarge":
      guard case .bool(let enlarge) = value else { return "Must be true or false." }
      request.enlarge = enlarge
    case "format":
      guard let format = value.string.flatMap(OutputFormat.init), formats.contains(format) else {
        let known = OutputFormat.allCases.filter(formats.contains).map(\.rawValue)
        return "Must be one of \(known.joined(separator: ", "))."
      }
      request.format = format
    case "quality":
      guard let quality = value.int, 1...100 ~= quality else {
        return "Must be an integer from 1 to 100."
      }
      request.quality = quality
    case "background":
      guard let color = value.string.flatMap(Variant.Color.init) else { return Variant.Color.words }
      request.background = color
    case "animated":
      guard case .bool(let animated) = value else { return "Must be true or false." }
      request.isAnimated = animated
    case "dpr":
      guard let dpr = value.double, 1...4 ~= dpr else { return "Must be a number from 1 to 4." }
      density = dpr
    default:
      let hint = mistakes.hint(for: member.name, among: Self.variantMembers)
      return "A variant has no such member.\(hint)"
    }
    return nil
  }

  static let variantMembers = [
    "name", "width", "height", "fit", "position", "enlarge", "format", "quality", "background",
    "dpr", "animated",
  ]

  private static func isVariantName(_ name: String) -> Bool {
    1...32 ~= name.utf8.count
      && name.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
          UInt8(ascii: "_"), UInt8(ascii: "-"):
          true
        default: false
        }
      }
  }
}
