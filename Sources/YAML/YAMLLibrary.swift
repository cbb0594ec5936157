internal import CYAML

/// The linked libyaml.
package enum YAMLLibrary {
  /// The library's version, such as `0.2.5`.
  package static var version: String { String(cString: yaml_get_version_string()) }
}
