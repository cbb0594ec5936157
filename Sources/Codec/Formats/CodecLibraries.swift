internal import CCodecs

/// The versions of the linked codec libraries.
package enum CodecLibraries {
  /// libpng's version, such as `1.6.39`.
  package static var pngVersion: String { String(cString: codecs_png_version()) }
  /// libjpeg-turbo's version, such as `2.1.5`.
  package static var jpegVersion: String { String(cString: codecs_jpeg_version()) }
  /// Little CMS's version, such as `2.14`.
  package static var lcmsVersion: String { String(cString: codecs_lcms_version()) }
  /// libwebp's version, such as `1.2.4`.
  package static var webpVersion: String { String(cString: codecs_webp_version()) }
  /// libde265's version, such as `1.0.11`.
  package static var de265Version: String { String(cString: codecs_de265_version()) }
  /// libjxl's version, such as `0.7.0`.
  package static var jxlVersion: String { String(cString: codecs_jxl_version()) }
  /// libavif's version and its AV1 codecs', such as `0.11.1 (dav1d [dec]:1.0.0, aom [enc/dec]:3.6.0)`.
  package static var avifVersion: String { String(cString: codecs_avif_version()) }
}
