internal import Jobs

/// Decodes `deliver`: the destinations that a job's image and variants are uploaded to before the job succeeds.
extension SubmissionDecoder {
  mutating func deliveries(_ value: JSONValue, at location: Location) -> [DeliveryRequest] {
    guard case .array(let elements) = value, elements.count <= DeliveryRequest.most else {
      addMistake(location, "Must be an array of at most \(DeliveryRequest.most) deliveries.")
      return []
    }
    return elements.enumerated().compactMap { index, element in
      delivery(element, at: location.child("\(index)"))
    }
  }

  /// Checks the names of variants. Call it after all members are set.
  mutating func checkDeliveries(of job: NewJob, at location: Location) {
    let names = Set(job.submission.variants.map(\.name))
    for (index, delivery) in job.submission.deliveries.enumerated() {
      guard let name = delivery.variant, !names.contains(name) else { continue }
      addMistake(location.child("\(index)").child("what"), "The job has no variant of this name.")
    }
  }

  private mutating func delivery(_ value: JSONValue, at location: Location) -> DeliveryRequest? {
    guard case .object(let members) = value else {
      addMistake(location, "A delivery must be an object, not \(value.kind).")
      return nil
    }
    func member(_ name: String) -> JSONValue? { members.first { $0.name == name }?.value }
    let variant: String?
    switch member("what") {
    case nil, .string("original"): variant = nil
    case .string(let name): variant = name
    default:
      addMistake(location.child("what"), "Must be original or the name of a variant.")
      return nil
    }
    for member in members where !Self.deliveryMembers.contains(member.name) {
      let hint = mistakes.hint(for: member.name, among: Self.deliveryMembers)
      addMistake(location.child(member.name), "A delivery has no such member.\(hint)")
    }
    switch (member("put"), member("to")) {
    case (let put?, nil):
      guard member("key") == nil else {
        addMistake(location.child("key"), "Remove key: a presigned URL already names the object.")
        return nil
      }
      guard let url = url(put, at: location.child("put")) else { return nil }
      let fields = member("headers").map { headers($0, at: location.child("headers")) } ?? []
      return DeliveryRequest(.put(url, headers: fields), variant: variant)
    case (nil, let name?):
      guard member("headers") == nil else {
        addMistake(location.child("headers"), "Remove headers: only put has them.")
        return nil
      }
      return profile(name, key: member("key"), variant, at: location)
    default:
      addMistake(location, "A delivery must have either put or to.")
      return nil
    }
  }

  private mutating func profile(
    _ name: JSONValue, key: JSONValue?, _ variant: String?, at location: Location
  ) -> DeliveryRequest? {
    guard let name = name.string, destinations.contains(name) else {
      addMistake(location.child("to"), "There is no destination of this name.")
      return nil
    }
    guard let key else {
      let usual = DeliveryKey(forVariant: variant != nil)
      return DeliveryRequest(.profile(name, key: usual), variant: variant)
    }
    guard let key = key.string.flatMap({ DeliveryKey($0) }) else {
      let names = DeliveryKey.Placeholder.allCases.map { "{\($0.rawValue)}" }.joined(separator: " ")
      addMistake(
        location.child("key"),
        "Must be a path of at most \(DeliveryKey.longest) bytes, without empty, . and .. segments. Placeholders: \(names)."
      )
      return nil
    }
    return DeliveryRequest(.profile(name, key: key), variant: variant)
  }

  private static let deliveryMembers = ["put", "to", "key", "what", "headers"]
}
