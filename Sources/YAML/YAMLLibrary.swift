internal import CYAML

/// The linked libyaml.
public enum YAMLLibrary {
  /// The library's version, such as `0.2.5`.
  public static var version: String { String(cString: yaml_get_version_string()) }
}
