// Colours: two themes in the visual code of the pictures, and a scale for numbers that colour-blind readers can use.

/**
 * @typedef {{[role: string]: string}} Colours
 */

/** @type {{light: Colours, dark: Colours}} */
export const THEMES = {
  light: {
    canvas: "#FBFBFC", text: "#14171A", muted: "#5B636B", line: "#6B7480", border: "#9AA3AD",
    group0: "#F3F5F8", group1: "#EAEEF3", group2: "#E1E7EE", group3: "#D9E0E9", groupLine: "#C3CBD5",
    node: "#FFFFFF", input: "#98FB98", output: "#FF9999", trainable: "#D9D9D9", frozen: "#B0B0B0",
    buffer: "#EFEFEF", condition: "#F7D460", backward: "#6A72E0",
    selected: "#0072B2", parents: "#0072B2", children: "#D55E00", hit: "#E69F00", step: "#CC79A7", edited: "#B8007F",
  },
  dark: {
    canvas: "#14171B", text: "#EEF1F4", muted: "#A2ABB5", line: "#8A949F", border: "#67717C",
    group0: "#1A1E23", group1: "#20252B", group2: "#272D34", group3: "#2E353D", groupLine: "#3F4852",
    node: "#242A31", input: "#1F6B33", output: "#8C2F36", trainable: "#474D55", frozen: "#33383F",
    buffer: "#2B3138", condition: "#7A5F00", backward: "#9197F6",
    selected: "#56B4E9", parents: "#56B4E9", children: "#E58A3C", hit: "#F0B429", step: "#E39BC4", edited: "#F06BC0",
  },
};

/** Cividis: from little to much, in steps that grow evenly lighter. */
const CIVIDIS = [
  [0, 32, 77], [0, 49, 111], [57, 72, 107], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [255, 234, 70],
];

/** The scale of the pictures: from pale to dark. */
const WARM = [[255, 247, 236], [254, 224, 181], [253, 187, 132], [249, 131, 85], [215, 48, 31], [139, 0, 0]];

/** The colour at a share between 0 and 1. @param {number[][]} scale @param {number} share */
function mixed(scale, share) {
  const at = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2);
  return scale[low].map((part, index) => Math.round(part + (scale[low + 1][index] - part) * (at - low)));
}

/** The numbers of a tensor. @param {number} share */
export const shadeOf = (share) => mixed(CIVIDIS, share);

/** A node coloured by a number, and its text; little is near the colour of the background. @param {number} share @param {boolean} dark @returns {[string, string]} */
export function heatOf(share, dark) {
  const fill = `rgb(${mixed(dark ? CIVIDIS : WARM, share).join(",")})`;
  return [fill, dark ? (share > 0.55 ? "#10131A" : "#FFFFFF") : share > 0.68 ? "#FFFFFF" : "#10131A"];
}
