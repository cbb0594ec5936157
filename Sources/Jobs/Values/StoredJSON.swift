internal import FoundationEssentials

/// Converts values that are stored, or sent between processes, to JSON in UTF-8 and back.
package enum StoredJSON {
  /// Members that an encoded value leaves out, because they are stored elsewhere.
  package struct Context: Sendable {
    /// The batch's defaults, see ``SharedDefaults``.
    package var defaults: SharedDefaults?
    /// The submission of an encoded ``Job``.
    package var submission: Submission?

    package init(defaults: SharedDefaults? = nil, submission: Submission? = nil) {
      (self.defaults, self.submission) = (defaults, submission)
    }

    fileprivate var userInfo: [CodingUserInfoKey: any Sendable] {
      var info: [CodingUserInfoKey: any Sendable] = [:]
      info[.defaults] = defaults
      info[.submission] = submission
      return info
    }
  }

  private static let decoder = JSONDecoder()

  /// - Throws: `EncodingError`, for example for infinity.
  package static func encode(
    _ value: some Encodable, without context: Context? = nil
  ) throws -> [UInt8] {
    try StoredJSONEncoder.encode(value, userInfo: context?.userInfo ?? [:])
  }

  /// Decodes what ``encode(_:without:)`` returned for the same context.
  /// - Throws: `DecodingError`.
  package static func decode<Value: Decodable>(
    _ type: Value.Type, from bytes: [UInt8], with context: Context? = nil
  ) throws -> Value {
    guard let context else { return try decoder.decode(type, from: Data(bytes)) }
    let decoder = JSONDecoder()
    decoder.userInfo = context.userInfo
    return try decoder.decode(type, from: Data(bytes))
  }
}

extension CodingUserInfoKey {
  /// The ``SharedDefaults`` whose members a record leaves out.
  static let defaults = CodingUserInfoKey(rawValue: "defaults")!  // never nil
  /// The ``Submission`` that an encoded ``Job`` leaves out.
  static let submission = CodingUserInfoKey(rawValue: "submission")!  // never nil
}
