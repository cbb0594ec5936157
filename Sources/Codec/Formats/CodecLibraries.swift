internal import CCodecs
internal import Jobs

/// A linked codec library.
package struct CodecLibrary: Sendable {
  package let name: String
  /// A sandboxed decoder must not call it: some libraries are not loaded there.
  private let readVersion: @Sendable () -> UnsafePointer<CChar>?

  init(_ name: String, _ version: @escaping @Sendable () -> UnsafePointer<CChar>?) {
    (self.name, readVersion) = (name, version)
  }

  /// For example `1.6.39`; of libavif also the versions of its AV1 codecs.
  package var version: String { readVersion().map { String(cString: $0) } ?? "" }

  /// Does once what libraries would otherwise do for each image. Call it before threads are started or decoders forked.
  package static func prepare() { heic_build_tables() }

  /// The libraries of all formats, and Little CMS, which applies color profiles.
  package static var all: [CodecLibrary] {
    ImageFormat.allCases.compactMap(\.traits.codecLibrary)
      + [CodecLibrary("liblcms2", codecs_lcms_version)]
  }
}
