internal import CCodecs
internal import Jobs

/// A linked codec library.
package struct CodecLibrary: Sendable {
  package let name: String
  /// For example `1.6.39`; of libavif also the versions of its AV1 codecs.
  package let version: String

  init(_ name: String, _ version: () -> UnsafePointer<CChar>?) {
    self.name = name
    self.version = version().map { String(cString: $0) } ?? ""
  }

  /// The libraries of all formats, and Little CMS, which applies color profiles.
  package static var all: [CodecLibrary] {
    ImageFormat.allCases.compactMap(\.traits.library)
      + [CodecLibrary("liblcms2", codecs_lcms_version)]
  }
}
